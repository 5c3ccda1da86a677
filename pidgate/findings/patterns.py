"""Patterns of users that create new producer ids: name, sentence and advice of each. Pure.

A user may show several.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Pattern(StrEnum):
    """One way of creating producers."""

    RESTART_LOOP = "restart_loop"  # KIP-936: a process that crashes and is started again, over and over
    PRODUCER_PER_ERROR = "producer_per_error"  # KIP-936: a new producer on each error
    PRODUCER_PER_BATCH = "producer_per_batch"  # KIP-936: a new producer for each batch or record
    PRODUCER_PER_TASK = "producer_per_task"  # a new producer for each request or job
    UNUSED_IDS = "unused_ids"  # producers that are opened and never send
    NEW_ID_AFTER_REFUSAL = "new_id_after_refusal"  # a client library that gives its refused id up for another
    MANY_PARTITIONS = "many_partitions"  # ids that cost brokers a state for each of many partitions
    UNCLOSED = "unclosed"  # producers that are opened for a moment and never closed
    RANDOM_TRANSACTIONAL_IDS = "random_transactional_ids"  # a transactional id made up at each start
    TRANSACTIONAL = "transactional"  # transactional ids that are kept
    STEADY = "steady"  # producers that live long
    ROLLING_DEPLOYMENT = "rolling_deployment"  # all instances once, one after the other
    AUTOSCALING = "autoscaling"  # instances come and go with the load
    CRON_JOB = "cron_job"  # a few short-lived producers, by the clock
    SHARED_ADDRESS = "shared_address"  # many processes behind one NAT address
    SHARED_CLIENT_ID = "shared_client_id"  # many processes with one client id
    UNKNOWN = "unknown"  # too little is known, or no rule matches


HARMFUL: Final = frozenset(
    (
        Pattern.RESTART_LOOP,
        Pattern.PRODUCER_PER_ERROR,
        Pattern.PRODUCER_PER_BATCH,
        Pattern.RANDOM_TRANSACTIONAL_IDS,
    )
)
"""Patterns called harmful by `offenders`."""
WASTEFUL: Final = frozenset(
    (
        Pattern.PRODUCER_PER_TASK,
        Pattern.UNUSED_IDS,
        Pattern.NEW_ID_AFTER_REFUSAL,
        Pattern.MANY_PARTITIONS,
        Pattern.UNCLOSED,
    )
)
"""Patterns that waste ids or states; `who` shows them with their remedy, as it does harmful ones."""


@dataclass(frozen=True, slots=True)
class PatternWords:
    """A pattern in words: its name, the user's behaviour, a sentence with {places} to fill, and the remedy.

    In a sentence {who} are clients; {s}, {is_} and {was} agree with them.
    """

    name: str
    does: str
    sentence: str = ""
    remedy: str = "Nothing has to change."


PATTERN_WORDS: Final[dict[Pattern, PatternWords]] = {
    Pattern.RESTART_LOOP: PatternWords(
        "Restart loop",
        "crashes and is started again, over and over",
        "{who} {is_} in a restart loop: {bursts} starts{in_turn}, every {interval}{backing_off}, "
        "{new_ids} new ids{in_active}{per_start}{lived}",
        "Find out why the process ends (its log, exit code, out of memory, a liveness probe that is too strict), and "
        "let the supervisor wait longer after each crash. A job that runs so often should keep one process with one "
        "producer.",
    ),
    Pattern.PRODUCER_PER_ERROR: PatternWords(
        "Producer per error",
        "opens a new producer on each error",
        "{who} open{s} a producer on each error: {failed} of its {new_ids} new ids{in_active} ended with one "
        "(code {error_code}){lived}",
        "Keep the producer when a send fails: the client retries by itself, for delivery.timeout.ms. Only a fatal "
        "error needs a new producer; wait longer before each next one.",
    ),
    Pattern.PRODUCER_PER_BATCH: PatternWords(
        "Producer per batch",
        "opens a new producer for each batch",
        "{who} open{s} a producer per batch: {new_ids} new ids{in_active}, {sent}",
        "Open one producer when the process starts, share it between all threads, and close it when the process "
        "ends; flush() after a batch instead. Producers are thread-safe; opening one per message or per batch costs "
        "a producer id each time.",
    ),
    Pattern.PRODUCER_PER_TASK: PatternWords(
        "Producer per task",
        "opens a new producer for each request or job",
        "{who} open{s} a producer per request or job: {new_ids} new ids{in_active}{lived}, {requests} requests each",
        "Share one producer in the process over requests and jobs, and close it only when the process ends.",
    ),
    Pattern.UNUSED_IDS: PatternWords(
        "Unused ids",
        "opens producers that never send",
        "{who} open{s} producers that never send: {unused_ids} of {allocated} handed out (InitProducerId) were never "
        "produced with",
        "Open a producer only where something is sent; without need for idempotence set enable.idempotence=false. "
        "Probes and health checks should use an admin client.",
    ),
    Pattern.NEW_ID_AFTER_REFUSAL: PatternWords(
        "New id after a refusal",
        "takes another producer id after a refusal",
        "{who} take{s} another id when one is refused: {after_refusal_ids} of {new_ids} new ids were refused "
        "and replaced within seconds",
        "Let it wait: raise its delivery time-out (delivery.timeout.ms, message.timeout.ms) above the throttle, or "
        "raise the quota for a while. Each new id is refused like the one before.",
    ),
    Pattern.MANY_PARTITIONS: PatternWords(
        "Many partitions",
        "writes to many partitions with each producer id",
        "{who} write{s} to {partitions} partitions with each of {used_ids} ids: about {states} producer states, "
        "times the replicas",
        "Keep producers for longer, or write to fewer partitions: a broker holds a state for each id and partition. "
        "producer_ids_rate counts such an id once; producer_states_rate counts each state.",
    ),
    Pattern.UNCLOSED: PatternWords(
        "Unclosed producers",
        "opens producers and never closes them",
        "{who} open{s} producers and never close{s} them: {open_connections} connections are open, {new_ids} new ids",
        "Share one producer in the process, or close() each after its last record. Open connections count against "
        "limits.connections, here and at the brokers.",
    ),
    Pattern.RANDOM_TRANSACTIONAL_IDS: PatternWords(
        "Random transactional ids",
        "makes up a new transactional id at each start",
        "{who} make{s} up a transactional id at each start: {new_ids} new ids{in_active}, {kept}",
        "Derive transactional.id from something that outlives a restart (the ordinal of a StatefulSet, the input "
        "partition). Then a restarted process takes its old producer id over, and old transactions are fenced.",
    ),
    Pattern.TRANSACTIONAL: PatternWords(
        "Transactional",
        "keeps its transactional ids",
        "{who} use{s} transactions: {transactional}, {bumps}",
        "Nothing has to change: a stable transactional.id keeps its producer id.",
    ),
    Pattern.STEADY: PatternWords(
        "Steady",
        "keeps its producers for long",
        "{who} {is_} steady: {long_lived}{beside}",
    ),
    Pattern.ROLLING_DEPLOYMENT: PatternWords(
        "Rolling deployment",
        "replaces all its instances, one after the other",
        "{who} {was} deployed: {replaced}",
        "Nothing has to change: set the quota above what one deployment and its roll-back bring.",
    ),
    Pattern.AUTOSCALING: PatternWords(
        "Autoscaling",
        "starts and ends instances with the load",
        "{who} scale{s} with the load: {alive_least} to {alive_most} instances, {late_ids} starts",
    ),
    Pattern.CRON_JOB: PatternWords(
        "Cron job",
        "starts a few short-lived producers by the clock",
        "{who} run{s} by the clock, every {interval}: {bursts} runs with {per_burst} new ids each{lived}",
    ),
    Pattern.SHARED_ADDRESS: PatternWords(
        "Shared address",
        "is many processes behind one address",
        "{has}{met_at_address} clients behind one address, {crowd_address}: {alive_at_address} producers at "
        "once, {new_ids} new ids",
        "Nothing has to change for processes behind one address. If they are threads of one process, share one "
        "producer between them: it is thread-safe, batches better and costs one id.",
    ),
    Pattern.SHARED_CLIENT_ID: PatternWords(
        "Shared client id",
        "is many processes with one client id",
        "{has}{met_at_client_id} addresses with the client id {crowd_client_id}: {alive_at_client_id} producers "
        "at once, {new_ids} new ids",
    ),
    Pattern.UNKNOWN: PatternWords(
        "Unknown",
        "fits no known pattern, or too little is known",
        "{ids} fit no known pattern",
        "Look at the addresses and client ids, or take a longer time; then ask the owner.",
    ),
}


def pattern_words(pattern: str) -> PatternWords:
    """Return the words of a pattern; plain ones for a pattern of a newer version."""
    try:
        return PATTERN_WORDS[Pattern(pattern)]
    except ValueError:
        return PatternWords(pattern.replace("_", " ").capitalize(), f"shows the pattern {pattern}", remedy="")
