"""Checks computed from the brokers, the log read back and the clients' own journals.

Only the gateway's own checks use its logs (is it alive, which users does it name). Claims about brokers and
clients never rely on its counters. Without a quota most checks must fail.
"""

from collections.abc import Iterator

from pidgate.protocol.errors import ErrorCode
from tools.sandbox.demo.evidence import Evidence, Half
from tools.sandbox.demo.findings import (
    Fate,
    bystander_saw,
    fate_of,
    mallory_ids,
    mallory_saw,
    nightly_verdict,
    refused_by_gateway,
)
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, CLICKS, MALLORY, NIGHTLY, PARTITIONS, Plan
from tools.sandbox.log_checker import Verdict
from tools.sandbox.play import Check

PROCESS = "the broker's process"
BROKER_LOG = "the broker's own log file"
GC_LOG = "the broker's garbage collection log"
DESCRIBE = "DescribeProducers, directly from the broker"
SEGMENTS = "batch headers in the segment files on the broker's disk"
READ_BACK = "the log read back from the broker by librdkafka, against the client's journal"
JOURNAL = "the client's journal"
LIBRARY = "the client library's own report"
GATEWAY_PROCESS = "the gateway's process and log"

# Log events of the gateway about its own errors.
_GATEWAY_TROUBLE = frozenset({"unexpected_error", "quota_failed_open"})


def verify(plan: Plan, evidence: Evidence) -> list[Check]:
    """Return all checks in display order."""
    direct, through = evidence.direct, evidence.through_gateway
    return [
        _direct_died(direct),
        *_broker_lives(direct, through),
        _ids_within_quota(plan, through, MALLORY, CLICKS),
        *(() if plan.fuse else (_ids_within_quota(plan, through, CAROL, NIGHTLY),)),
        _broker_keeps_what_its_log_holds(through),
        _mallory_got_what_she_was_told(through),
        _mallory_was_told_why(through),
        _nightly_is_true(through),
        *(check for user in (ALICE, BOB) for check in _bystander(through, user)),
        *_gateway(through),
    ]


def _direct_died(direct: Half) -> Check:
    name = "directly, the broker dies of memory"
    if not direct.died:
        return Check(name, False, f"it lived for {direct.attack_s:.1f} s", PROCESS)
    found = f"dead after {direct.attack_s:.1f} s, exit code {direct.broker.exit_code}"
    out_of_memory = direct.broker.out_of_memory or "no OutOfMemoryError in its log"
    return Check(
        name, bool(direct.broker.out_of_memory), f"{found}: {out_of_memory}", f"{PROCESS}; {BROKER_LOG}"
    )


def _broker_lives(direct: Half, through: Half) -> Iterator[Check]:
    alive = not through.died
    longer = through.attack_s > direct.attack_s
    verb = "alive" if alive else f"dead (exit code {through.broker.exit_code})"
    yield Check(
        "through the gateway, it outlives that time",
        alive and longer,
        f"{verb} after {through.attack_s:.1f} s of the same rogues, {direct.attack_s:.1f} s directly",
        PROCESS,
    )
    yield Check(
        "and never ran out of memory",
        alive and not through.broker.out_of_memory,
        through.broker.out_of_memory or "no OutOfMemoryError",
        BROKER_LOG,
    )
    yield Check(
        "and still serves",
        through.broker.answers and through.broker.states is not None,
        "metadata and a producer id were given" if through.broker.answers else "no answer",
        "requests made to the broker directly",
    )


def _ids_within_quota(plan: Plan, through: Half, user: str, topic: str) -> Check:
    name = f"{user}'s new ids stay within {'what the broker has room for' if plan.fuse else 'the quota'}"
    ids = len(through.broker.segments[topic].ids)
    ran_s = through.gateway.ran_s if through.gateway else through.attack_s
    bound = plan.admitted_at_most(user, ran_s)
    if bound is None:
        return Check(name, False, f"{ids:,} ids, and there is no quota", SEGMENTS)
    return Check(name, ids <= bound, f"{ids:,} ids, at most {bound:,} allowed", SEGMENTS)


def _broker_keeps_what_its_log_holds(through: Half) -> Check:
    name = "the broker keeps exactly the ids in its log"
    states = through.broker.states
    if states is None:
        return Check(name, False, "the broker does not respond", DESCRIBE)
    kept = {
        (topic, partition, producer_id)
        for topic, partitions in states.items()
        for partition, ids in partitions.items()
        for producer_id in ids
    }
    written = {
        (topic, partition, producer_id)
        for topic, found in through.broker.segments.items()
        for partition, producer_id in found.batches
    }
    found = f"{len(kept):,} states kept, {len(written):,} in the log, {len(kept ^ written):,} differ"
    return Check(name, bool(kept) and kept == written, found, f"{DESCRIBE}; {SEGMENTS}")


def _mallory_got_what_she_was_told(through: Half) -> Check:
    ids = mallory_ids(through)
    clicks = through.broker.segments[CLICKS]
    partitions_of = clicks.partitions_of()
    everywhere = PARTITIONS[CLICKS]
    acknowledged = [one for one, entry in ids.items() if fate_of(entry) is Fate.ACKNOWLEDGED]
    missing = [one for one in acknowledged if partitions_of[one] != everywhere]
    given_up = [one for one, entry in ids.items() if fate_of(entry) is Fate.GAVE_UP]
    written_all_the_same = [one for one in given_up if partitions_of[one]]
    doubled = clicks.doubled()
    strangers = clicks.ids - ids.keys()
    faults = len(missing) + len(written_all_the_same) + len(doubled) + len(strangers)
    found = (
        f"{len(acknowledged):,} acknowledged: {len(missing)} not in all {everywhere} partitions, "
        f"{len(doubled)} doubled; {len(given_up):,} given up: {len(written_all_the_same)} written"
    )
    return Check(
        "mallory's acknowledged batches are in the log once, refused ones never",
        through.broker.answers and faults == 0,
        found,
        f"{SEGMENTS}; {JOURNAL}",
    )


def _mallory_was_told_why(through: Half) -> Check:
    saw = mallory_saw(through)
    explained = MALLORY in saw.message and "producer id" in saw.message
    passed = (
        saw.refused > 0
        and set(saw.error_codes) == {ErrorCode.NOT_ENOUGH_REPLICAS}
        and saw.throttle_times_ms[0] > 0
        and explained
    )
    least_ms, greatest_ms = saw.throttle_times_ms
    found = (
        f"{saw.refused:,} ids refused with code {', '.join(map(str, saw.error_codes)) or '-'}, "
        f"throttle_time_ms {least_ms:,} to {greatest_ms:,}"
    )
    return Check("mallory was refused with a reason and a throttle time", passed, found, JOURNAL)


def _nightly_is_true(through: Half) -> Check:
    verdict = nightly_verdict(through)
    return Check(
        "carol's acknowledged records are in the log once",
        verdict is not None and verdict.is_good,
        _summary(verdict),
        READ_BACK,
    )


def _bystander(through: Half, user: str) -> Iterator[Check]:
    saw = bystander_saw(through, user)
    verdict = saw.verdict
    yield Check(
        f"{user} was never refused",
        saw.refused == 0,
        "the client was killed" if saw.refused is None else f"{saw.refused} refusals",
        LIBRARY,
    )
    settled = saw.acknowledged > 0 and saw.failed == 0 and saw.unknown == 0
    yield Check(
        f"all of {user}'s records are acknowledged",
        settled,
        f"{saw.acknowledged:,} of {saw.sent:,}; {saw.failed:,} failed, {saw.unknown:,} without an answer",
        JOURNAL,
    )
    yield Check(
        f"{user}'s acknowledged records are in the log exactly once, in order",
        verdict is not None and verdict.is_good and verdict.acknowledged > 0,
        _summary(verdict),
        READ_BACK,
    )


def _summary(verdict: Verdict | None) -> str:
    if verdict is None:
        return "the broker cannot be read"
    if not verdict.is_good:
        return verdict.summary()
    return f"{verdict.acknowledged:,} acknowledged, {verdict.in_log:,} in the log; none missing, doubled or moved"


def _gateway(through: Half) -> Iterator[Check]:
    gateway = through.gateway
    if gateway is None:
        yield Check("the gateway stayed up", False, "not running", GATEWAY_PROCESS)
        return
    trouble = sorted({str(event.get("event")) for event in gateway.log_events} & _GATEWAY_TROUBLE)
    yield Check(
        "the gateway stayed up and stopped on SIGTERM",
        gateway.alive_after_attack and gateway.exit_code == 0 and not trouble,
        f"exit code {gateway.exit_code}; trouble logged: {', '.join(trouble) or 'none'}",
        GATEWAY_PROCESS,
    )
    saw = mallory_saw(through)
    named = {refused.user: refused for refused in refused_by_gateway(through)}
    mallory = named.get(MALLORY)
    yield Check(
        "it names the refused users, and no others",
        set(named) <= {MALLORY, CAROL}
        and mallory is not None
        and mallory.client_ids <= set(saw.client_ids)
        and mallory.hosts <= set(saw.hosts),
        ", ".join(
            f"{user} ({', '.join(sorted(refused.client_ids))} from {', '.join(sorted(refused.hosts))})"
            for user, refused in named.items()
        )
        or "nobody",
        f"{GATEWAY_PROCESS}; {JOURNAL}",
    )
