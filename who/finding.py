"""What a finding is, its kinds (the words of --json), and what to do about each. Pure; no rules here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The words of --json."""

    RESTART_LOOP = "restart_loop"
    ONE_ID_PER_BATCH = "one_id_per_batch"
    PRODUCER_PER_TASK = "producer_per_task"
    PRODUCER_PER_THREAD = "producer_per_thread"
    UNUSED_IDS = "unused_ids"
    NEW_TRANSACTIONAL_IDS = "new_transactional_ids"
    TRANSACTIONAL = "transactional"
    DEPLOY = "deploy"
    STEADY = "steady"
    NO_PATTERN = "no_pattern"


REMEDIES: Final[Mapping[Kind, str]] = {
    Kind.RESTART_LOOP: "find out why it exits (its own log, exit code, OOM kill); a job that runs so often "
    "should keep one process with one producer",
    Kind.ONE_ID_PER_BATCH: "create the producer once and keep it: send() is thread-safe; flush() instead of "
    "close() after a batch",
    Kind.PRODUCER_PER_TASK: "share one producer in the process over requests and jobs; close it only when the "
    "process ends",
    Kind.PRODUCER_PER_THREAD: "share one producer between the threads: it is thread-safe, batches better and "
    "costs one id; nothing to do if these are instances behind one address",
    Kind.UNUSED_IDS: "open a producer only where something is sent; without need for idempotence set "
    "enable.idempotence=false; probes and health checks should use an admin client",
    Kind.NEW_TRANSACTIONAL_IDS: "give each instance one transactional.id and keep it over restarts: then its "
    "producer id is kept, too",
    Kind.TRANSACTIONAL: "nothing to do: a stable transactional.id keeps its producer id",
    Kind.DEPLOY: "nothing to do: set the quota above what one deployment and its roll-back bring",
    Kind.STEADY: "nothing to do",
    Kind.NO_PATTERN: "look at the addresses and client ids, or take a longer --since",
}

Evidence = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, in words, with the numbers it rests on."""

    kind: Kind
    text: str
    ids: int
    addresses: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        return REMEDIES[self.kind]
