"""A slow reference in plain Python of what `rates` and `offenders` count: loops over events, no SQL."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pidgate.findings.cadence import Start, cadence
from pidgate.findings.families import ANYTHING, OWN_STORY, family
from pidgate.findings.features import SHORT_LIFE_MS
from tests.pipeline.made_events import DAY, HOUR, MINUTE, Row

UNITS = {"minute": MINUTE, "hour": HOUR, "day": DAY}
STEP = 10 * MINUTE
"""The brokers' check interval."""
Use = tuple[int, int]
"""First and last moment of a use."""


def arrivals(decisions: Iterable[Row], remember_ms: int) -> list[Row]:
    """Walk through each id's decisions; a long rest begins a new stay, and a stay that begins as known is none."""
    of_id: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in decisions:
        if row["producer_id"] >= 0 and row["decision"] != "hold":
            of_id[row["user"], row["producer_id"]].append(row)
    found: list[Row] = []
    for rows in of_id.values():
        arrival: Row = {}
        last_ms = None
        for row in sorted(
            rows, key=lambda one: (one["wall_time_ms"], one["gateway_id"], one["incarnation"], one["seq"])
        ):
            at_ms = row["wall_time_ms"]
            if last_ms is None or at_ms - last_ms > remember_ms:
                arrival = {**row, "at_ms": at_ms, "first_admitted_ms": None, "refusals": 0}
                if row["reason"] not in {"refresh", "inherited"}:
                    found.append(arrival)
            if row["decision"] == "refuse":
                arrival["refusals"] += 1
            else:
                arrival["first_admitted_ms"] = arrival["first_admitted_ms"] or at_ms
            last_ms = at_ms
    return found


class Reference:
    """The result tables of `rates`, as sorted rows."""

    def __init__(self, rows: Mapping[str, Sequence[Row]], *, remember_ms: int, expiry_ms: int) -> None:
        self._decisions = rows.get("decision", ())
        self._usage = [row for row in rows.get("id_usage", ()) if row["producer_id"] >= 0]
        self._outcomes = rows.get("refusal_outcome", ())
        self._came = arrivals(self._decisions, remember_ms)
        self._expiry_ms = expiry_ms
        users = sorted(
            {row["user"] for kind in (self._decisions, self._usage, self._outcomes) for row in kind}
        )
        self.rates_by_time: list[tuple[Any, ...]] = []
        self.rates_clients: list[tuple[Any, ...]] = []
        self.held_by_hour: list[tuple[Any, ...]] = []
        self.rates_users: list[tuple[Any, ...]] = []
        for user in users:
            self._count(user)

    def _count(self, user: str) -> None:
        came = [row for row in self._came if row["user"] == user]
        new = [row["first_admitted_ms"] for row in came if row["first_admitted_ms"] is not None]
        refused_ids = [row["at_ms"] for row in came if row["first_admitted_ms"] is None]
        refused = [row for row in self._decisions if row["user"] == user and row["decision"] == "refuse"]
        refusals = [row["wall_time_ms"] for row in refused]
        uses = self._uses(user)
        in_unit = {unit: self._in_unit(uses, ms) for unit, ms in UNITS.items()}
        for unit, ms in UNITS.items():
            new_in, refusals_in = (Counter(at - at % ms for at in times) for times in (new, refusals))
            moments = {at - at % ms for at in (*new, *refused_ids, *refusals)}
            moments |= set() if unit == "minute" else set(in_unit[unit])
            self.rates_by_time += [
                (user, unit, at, len(in_unit[unit].get(at, ())), new_in[at], refusals_in[at])
                for at in moments
            ]
        self._count_clients(user, came, refused)
        held = self._held(user, uses)
        self.held_by_hour += [(user, at, *most) for at, most in held.items()]
        partitions = [most for most in self._partitions(user).values() if most is not None]
        lives = [max(last for _, last in of_id) - min(first for first, _ in of_id) for of_id in uses.values()]
        requests = sum(row["requests"] for row in self._usage if row["user"] == user)
        all_moments = (
            [at for of_id in uses.values() for use in of_id for at in use] + new + refused_ids + refusals
        )
        outcomes = [row for row in self._outcomes if row["user"] == user]
        waited = [row["waited_ms"] for row in outcomes if row["outcome"] == "admitted"]
        first_ms, last_ms = min(all_moments, default=None), max(all_moments, default=None)
        self.rates_users.append((
            user, first_ms, last_ms, len(uses), len(new),
            *(max(Counter(at // ms for at in new).values(), default=0) for ms in UNITS.values()),
            *(_per_hour(new, first_ms, last_ms, share) for share in (0.5, 0.95, 0.99)),
            _quantile(lives, 0.5), _quantile(lives, 0.95), requests, requests / len(uses) if uses else None,
            sum(partitions) / len(partitions) if partitions else None, len(refusals), len(refused_ids),
            _quantile(waited, 0.5), _quantile(waited, 0.95),
            sum(row["outcome"] == "gave_up" for row in outcomes),
            max((ids for ids, _ in held.values()), default=0), max((states for _, states in held.values()), default=0),
        ))  # fmt: skip

    def _uses(self, user: str) -> dict[int, list[Use]]:
        found: dict[int, list[Use]] = defaultdict(list)
        for row in self._decisions:
            if row["user"] == user and _is_use(row):
                found[row["producer_id"]].append((row["wall_time_ms"], row["wall_time_ms"]))
        for row in self._usage:
            if row["user"] == user:
                last_ms = max(row["first_ms"], row["last_ms"])
                # Of an impossible length the last hour counts.
                found[row["producer_id"]].append((max(row["first_ms"], row["last_ms"] - HOUR), last_ms))
        return found

    def _partitions(self, user: str) -> dict[int, int | None]:
        found: dict[int, int | None] = dict.fromkeys(self._uses(user))
        for row in self._usage:
            if row["user"] == user:
                found[row["producer_id"]] = max(found[row["producer_id"]] or 0, row["partitions"])
        return found

    @staticmethod
    def _in_unit(uses: Mapping[int, Sequence[Use]], ms: int) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for producer_id, of_id in uses.items():
            for first, last in of_id:
                for at in range(first - first % ms, last + 1, ms):
                    found[at].add(producer_id)
        return found

    def _held(self, user: str, uses: Mapping[int, Sequence[Use]]) -> dict[int, tuple[int, int]]:
        partitions = self._partitions(user)
        ids: Counter[int] = Counter()
        states: Counter[int] = Counter()
        for producer_id, of_id in uses.items():
            # A broker's step holds an id once, however often it was used.
            steps = {
                step
                for first, last in of_id
                for step in range(first // STEP, (last + self._expiry_ms) // STEP + 1)
            }
            ids.update(steps)
            states.update(dict.fromkeys(steps, partitions[producer_id] or 1))
        by_hour: dict[int, tuple[int, int]] = {}
        for step, count in ids.items():
            hour = step * STEP - step * STEP % HOUR
            most = by_hour.get(hour, (0, 0))
            by_hour[hour] = (max(most[0], count), max(most[1], states[step]))
        return by_hour

    def _count_clients(self, user: str, came: Sequence[Row], refused: Sequence[Row]) -> None:
        used = [
            row
            for row in (*self._decisions, *self._usage)
            if row["user"] == user and ("requests" in row or _is_use(row))
        ]
        clients = {row["client_id"] for row in (*used, *came, *refused)}
        for client in clients:
            mine: Callable[[Row], bool] = lambda row, client=client: row["client_id"] == client  # type: ignore[misc]  # noqa: E731
            new = [
                row["first_admitted_ms"] for row in filter(mine, came) if row["first_admitted_ms"] is not None
            ]
            ids = {row["producer_id"] for row in filter(mine, used)}
            requests = sum(row.get("requests") or 0 for row in filter(mine, used))
            peak = max(Counter(at // HOUR for at in new).values(), default=0)
            refusals = sum(map(mine, refused))
            self.rates_clients.append((user, client, len(ids), len(new), peak, requests, refusals))


def _is_use(row: Row) -> bool:
    return bool(row.get("decision") == "admit" and row["reason"] != "inherited" and row["producer_id"] >= 0)


def _quantile(values: Sequence[int], share: float) -> int | None:
    """Return the least value that at least this share of the values does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1] if values else None


def _per_hour(new: Sequence[int], first_ms: int | None, last_ms: int | None, share: float) -> float | None:
    if first_ms is None or last_ms is None:
        return None
    counts = Counter(at // HOUR for at in new)
    hours = sorted(counts[hour] for hour in range(first_ms // HOUR, last_ms // HOUR + 1))
    rank = (len(hours) - 1) * share
    below, above = hours[math.floor(rank)], hours[math.ceil(rank)]
    return below + (above - below) * (rank - math.floor(rank))


# Sources of `offenders`

Place = tuple[str, str, str]
"""User, client id, address."""


def producers(rows: Mapping[str, Sequence[Row]], remember_ms: int) -> list[Row]:
    """One row per (user, producer id) that was met."""
    met: dict[tuple[str, int], Row] = {}
    for row in sorted(arrivals(rows.get("decision", ()), remember_ms), key=lambda one: one["at_ms"]):
        place = (row["user"], row["client_id"] or "", row["address"] or "")
        connection = row["incarnation"], row["connection_id"]
        first = {"place": place, "connection": connection, "started_ms": row["at_ms"], "names": set()}
        one = met.setdefault(
            (row["user"], row["producer_id"]), {**first, "admitted": False, "transactional": False}
        )
        one["admitted"] |= row["first_admitted_ms"] is not None
        one["transactional"] |= row["transactional"] or False
        one["names"] |= {row["transactional_id_hash"]} - {None}
    for row in rows.get("id_usage", ()):
        if row["producer_id"] >= 0:
            place = (row["user"], row["client_id"] or "", row["address"] or "")
            unknown: Row = {
                "started_ms": None,
                "names": set(),
                "connection": None,
                "admitted": True,
                "transactional": False,
            }
            one = met.setdefault((row["user"], row["producer_id"]), {**unknown, "place": place})
            if one["started_ms"] is None:
                one["place"] = min(one["place"], place)
            one["requests"] = one.get("requests", 0) + row["requests"]
            used_ms = max(row["first_ms"], row["last_ms"])
            if used_ms >= one.get("used_ms", 0):
                one["used_ms"], one["last_connection"] = used_ms, (row["incarnation"], row["connection_id"])
    for row in rows.get("produce_error", ()):
        if (known := met.get((row["user"], row["producer_id"]))) is not None:
            known["error_ms"] = max(known.get("error_ms", 0), row["wall_time_ms"])
            known["code"] = min(known.get("code", row["code"]), row["code"])
    return list(met.values())


def sources(rows: Mapping[str, Sequence[Row]], remember_ms: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The features of each source, by user, name of its clients, and address (None: several)."""
    known = producers(rows, remember_ms)
    of_place: dict[Place, list[Row]] = defaultdict(list)
    for one in known:
        of_place[one["place"]].append(one)
    families = Counter((user, family(client)) for user, client, _ in (one["place"] for one in known))
    starts = {place: sum(one["started_ms"] is not None for one in mine) for place, mine in of_place.items()}
    app = {
        place: family(place[1]) if families[place[0], family(place[1])] >= OWN_STORY else ANYTHING
        for place in starts
    }
    is_large = {place: families[place[0], family(place[1])] >= OWN_STORY for place in starts}
    others: Counter[tuple[Any, ...]] = Counter()
    for place, count in starts.items():
        if count < OWN_STORY:
            others[place[0], app[place], is_large[place], place[2]] += count
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for place, mine in of_place.items():
        user, client, address = place
        alone = starts[place] >= OWN_STORY
        at_one = alone or others[user, app[place], is_large[place], address] >= OWN_STORY
        key = (user, alone, is_large[place], client if alone else app[place], address if at_one else None)
        found[key] += [one for one in mine if one["started_ms"] is not None]
    closes = {
        (row["incarnation"], row["connection_id"]): row
        for row in rows.get("connection", ())
        if row["phase"] == "close" and row["close_reason"] in {"client", "reset"}
    }
    last = Counter(_last_connection(one) for one in known)
    for one in known:
        connection = _last_connection(one)
        one["close"] = closes.get(connection) if last[connection] == 1 else None
    return {key: _features(mine) for key, mine in found.items() if mine}


def _last_connection(one: Row) -> Any:
    return one.get("last_connection", one["connection"])


def _features(mine: Sequence[Row]) -> dict[str, Any]:
    closes = [one["close"] for one in mine if one["close"] is not None]
    used = [one for one in mine if "requests" in one]
    end_ms = {id(one): max(one["started_ms"], one.get("used_ms", 0)) for one in mine}
    life_ms = {id(one): end_ms[id(one)] - one["started_ms"] for one in mine}
    length_ms = max(1, max(end_ms.values()) - min(one["started_ms"] for one in mine))
    gone_ms = {id(one): max(end_ms[id(one)], (one["close"] or {}).get("wall_time_ms", 0)) for one in mine}

    def share(which: Callable[[Row], bool]) -> float | None:
        return sum(map(which, used)) / len(used) if used else None

    return {
        "new_ids": sum(one["admitted"] for one in mine),
        "refused_ids": sum(not one["admitted"] for one in mine),
        "used": len(used),
        "one_request": share(lambda one: one["requests"] <= 1),
        "two_requests": share(lambda one: one["requests"] <= 2),
        "requests": sum(one["requests"] for one in used) / len(used) if used else None,
        "short_lived": share(lambda one: life_ms[id(one)] < SHORT_LIFE_MS),
        "life_ms": math.exp(sum(math.log(max(life_ms[id(one)], 1)) for one in used) / len(used))
        if used
        else None,
        "failed": share(lambda one: one.get("error_ms", -1) >= one["used_ms"]),
        "error_code": min((one["code"] for one in mine if "code" in one), default=None),
        "transactional": sum(one["transactional"] for one in mine) / len(mine),
        "names": len({min(one["names"]) for one in mine if one["names"]}),
        "connections": len({one["connection"] for one in mine}) / len(mine),
        "alive": sum(life_ms.values()) / length_ms,
        "active_ms": length_ms,
        "resets": sum(row["close_reason"] == "reset" for row in closes) / len(closes) if closes else None,
        **cadence(Start(one["started_ms"], gone_ms[id(one)]) for one in mine),
    }
