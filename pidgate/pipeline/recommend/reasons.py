"""Reasons for a rate, or remedies if no rate helps, for the responsible person. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pidgate.findings.patterns import Pattern, pattern_words
from pidgate.pipeline.recommend.chosen import Action, Choice, Fit, separates
from pidgate.pipeline.recommend.evidence import Asked, Counts, Evidence, Tried
from pidgate.units import about_duration, counted, listed, number

_AT_THE_SOURCE = frozenset((Pattern.RESTART_LOOP, Pattern.PRODUCER_PER_ERROR, Pattern.PRODUCER_PER_BATCH))
"""Patterns that open producers without a transactional id; their InitProducerId can be refused."""
_MOST_POINTS = 8
ONLY_OBSERVED: Final = "only observed: it refuses nothing until it is enforced (pidgate promote)"


def reasons(user: Evidence, choice: Choice, asked: Asked) -> list[str]:
    """Return the sentences, most important first."""
    return [
        *_of_action(user, choice, asked),
        *_of_rogue(user, choice),
        *_of_judged_days(user, choice),
        *_cautions(user, choice),
    ]


def _of_action(user: Evidence, choice: Choice, asked: Asked) -> Iterator[str]:
    match choice.action:
        case Action.NONE:
            yield _nothing(user, choice, asked)
        case Action.NO_RATE:
            yield _not_separated(user, choice)
        case Action.SET if choice.fit:
            yield from _of_new_rate(user, choice.fit)
        case Action.KEEP if not user.is_enforced:
            yield ONLY_OBSERVED


def _nothing(user: Evidence, choice: Choice, asked: Asked) -> str:
    if user.exempt:
        return "exempt: counted, never refused"
    seen = about_duration(max(0, asked.end_ms - user.first_ms))
    whole = about_duration(max(0, asked.end_ms - asked.begin_ms))
    return {
        "history": f"{whole} of history are too little to recommend a rate: take "
        f"{about_duration(asked.least_history_ms)} or more (--least-history)",
        "time": f"seen for {seen} only: a recommendation needs at least a day",
        "ids": f"{counted(user.whole.ids, 'new id')} in {seen} are too few for a rate of its own; "
        f"the minimum is {asked.least_ids} (--least-ids)",
        "arrivals": f"{counted(user.healthy_refusals, 'refusal')} of healthy ids kept an unknown number of "
        "producers away: not enough to lower a rate or to set the first one; observe it for a week (mode: observe), "
        "then run again with --since",
    }.get(choice.lacks, "no new ids in these days")


def _not_separated(user: Evidence, choice: Choice) -> str:
    if choice.fit is None:
        return "every rate tried makes healthy ids wait"
    whole, rate = choice.fit.pick.whole, number(choice.fit.pick.rate)
    if not user.whole.healthy_peak:
        return (
            f"the rogue is too slow for every tried rate: {rate} admits {_of(whole)} of its ids. Fix its "
            "cause instead of setting a quota"
        )
    if whole.holds and choice.judged:
        return (
            "no rate holds the rogue reliably: what held it in the days learnt from "
            f"({number(choice.judged.pick.rate)}) admits {_of(choice.judged.pick.test)} of its ids in the judged days"
        )
    return (
        f"no rate separates the rogue from the healthy ids: {rate}, the lowest with headroom that refuses none, "
        f"admits {_of(whole)} of its ids"
    )


def _of(counts: Counts) -> str:
    return f"{number(counts.rogue_admitted)} of {number(counts.rogue_ids)}"


def _of_new_rate(user: Evidence, fit: Fit) -> Iterator[str]:
    pick, whole, now = fit.pick, fit.pick.whole, user.now
    if user.whole.healthy_peak:
        yield (
            f"healthy producers brought at most {counted(user.whole.healthy_peak, 'new id')} in a window; "
            f"{number(fit.least.rate)} is the lowest rate tried that refuses none"
        )
    else:
        yield f"no healthy producer was seen: {number(pick.rate)} is the lowest rate tried"
    if user.whole.alive > max(user.whole.healthy_peak, 1):
        fits = "fits" if pick.rate >= user.whole.alive else "would have to wait"
        yield f"{number(user.whole.alive)} ids were in use at the same time: a simultaneous restart {fits}"
    if whole.healthy_refused:
        yield (
            f"{counted(whole.healthy_refused, 'healthy id')} would have had to wait, the longest for "
            f"{_seconds(whole.longest_wait_ms)}; none gives up"
        )
    if user.current_rate is None:
        yield "no rate is in force"
    elif now.whole.healthy_refused:
        refused = counted(now.whole.healthy_refused, "healthy id")
        yield f"the rate in force ({number(now.rate)}) would have refused {refused}"
    elif now.whole.rogue_admitted:
        yield f"the rate in force ({number(now.rate)}) admits {_of(now.whole)} ids of rogue producers"
    elif now.rate < pick.rate:
        yield f"the rate in force ({number(now.rate)}) is lower"


def _of_rogue(user: Evidence, choice: Choice) -> Iterator[str]:
    if not user.whole.rogue_ids or choice.action is Action.NONE:
        return
    found = ", ".join(pattern_words(pattern).name.lower() for pattern in user.patterns) or "rogue"
    clients = f" ({listed(list(user.rogues), 3)})" if user.rogues else ""
    yield f"{found}{clients}: {number(user.whole.rogue_ids)} of {counted(user.whole.ids, 'new id')} are its own"
    if choice.action is Action.SET and choice.fit:
        yield f"in all these days {number(choice.fit.pick.rate)} admits {_of(choice.fit.pick.whole)} of them"
        if not separates(choice.fit, choice.judged):
            yield "that does not hold the rogue: the rate is for the healthy ids, the remedies are for the rogue"
    if choice.action in (Action.SET, Action.NO_RATE):
        yield f"rates tried: {curve(user.tried)}"


def curve(tried: Sequence[Tried]) -> str:
    """Return, for some rates, the share of the rogue held and the healthy ids that wait."""
    step = max(1, -(-len(tried) // _MOST_POINTS))
    shown = [*tried[:-1:step], tried[-1]] if tried else []
    points = (
        f"{number(one.rate)} holds {_per_cent(one.whole)} of the rogue's ids and lets "
        f"{counted(one.whole.healthy_refused, 'healthy id')} wait"
        for one in shown
    )
    return "; ".join(points)


def _per_cent(counts: Counts) -> str:
    return f"{100 * counts.rogue_refused // max(1, counts.rogue_ids)} %"


def _of_judged_days(user: Evidence, choice: Choice) -> Iterator[str]:
    """Yield the outcome of the held-out days for the rate chosen without them."""
    if choice.action not in (Action.SET, Action.KEEP):
        return
    test = choice.test(user)
    if choice.judged is None or test is None:
        yield "not judged: it brought no id in the days learnt from"
        return
    rate = choice.judged.pick.rate if choice.action is Action.SET else user.current_rate
    in_force = "the rate in force" if user.is_enforced else "the observed rate, if it were enforced"
    learnt = in_force if choice.action is Action.KEEP else "learnt from the days before"
    rogue = f"admits {_of(test)} rogue ids and " if test.rogue_ids else ""
    yield (
        f"judged on the held-out days: {number(rate or 0)} ({learnt}) {rogue}makes "
        f"{counted(test.healthy_refused, 'healthy id')} wait"
    )
    if choice.action is Action.SET and test.rogue_ids and not user.train.rogue_ids:
        yield "the rogue came in the held-out days only, so holding it is not judged"
    if test.rogue_ids and (plain := user.at(max(user.train.naive, 1))):
        yield f"the maximum of history ({number(plain.rate)}) admits {_of(plain.test)} there"


def _cautions(user: Evidence, choice: Choice) -> Iterator[str]:
    if choice.action is Action.NONE:
        return
    if user.whole.rogue_transactional_ids:
        yield (
            f"{number(user.whole.rogue_transactional_ids)} of its rogue ids are transactional, refused only with "
            "quotas.producer_ids.transactional: enforce"
        )
    if user.healthy_refusals:
        yield (
            f"censored: {counted(user.healthy_refusals, 'refusal')} of healthy ids; "
            "the need may be larger, so the rate is a minimum"
        )
    if choice.action is Action.SET and user.source == "run_time":
        yield (
            f"set at run time by {user.set_by}, which overrides the file until it is reset (pidgate quotas)"
        )


def remedies(user: Evidence, choice: Choice, asked: Asked) -> list[str]:
    """Return remedies if no rate holds the rogue, cheapest first; otherwise none."""
    is_set = choice.action is Action.SET and choice.fit and separates(choice.fit, choice.judged)
    if not user.whole.rogue_ids or is_set or choice.action not in (Action.SET, Action.NO_RATE):
        return []
    return [
        *(f"fix the client: {pattern_words(pattern).remedy}" for pattern in user.patterns),
        *_own_principal(user),
        *_waiting_rate(choice, asked),
        *_other_limits(user),
    ]


def _own_principal(user: Evidence) -> Iterator[str]:
    if user.whole.healthy_peak:
        whom = listed(list(user.rogues), 3) or "the rogue"
        yield f"give {whom} a principal of its own: its quota then affects no other user"


def _waiting_rate(choice: Choice, asked: Asked) -> Iterator[str]:
    holding = choice.fit.holding if choice.fit else None
    if holding and not asked.longest_wait_ms:
        whole = holding.whole
        seconds = max(1, -(-whole.longest_wait_ms // 1000))
        yield (
            f"set {number(holding.rate)} (--longest-wait {seconds}): it admits {_of(whole)} rogue ids; "
            f"{counted(whole.healthy_refused, 'healthy id')} would have waited, the longest for "
            f"{_seconds(whole.longest_wait_ms)}, and lost nothing"
        )


def _other_limits(user: Evidence) -> Iterator[str]:
    if user.whole.rogue_transactional_ids or Pattern.RANDOM_TRANSACTIONAL_IDS in user.patterns:
        yield (
            "transactional_ids_rate limits new transactional ids at InitProducerId, before anything is sent: "
            "reused ids are free, generated ones are not"
        )
    if _AT_THE_SOURCE & set(user.patterns):
        yield (
            "quotas.producer_ids.refuse_init_producer_id: true gives no id to a user without tokens, so "
            "waiting clients burn none at any rate"
        )


def _seconds(wait_ms: int) -> str:
    return f"{number(-(-wait_ms // 1000))} s"
