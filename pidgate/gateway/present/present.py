"""The present of this gateway, computed from its accounts on request.

Every answer is collected in turns with the traffic. The caller bounds how often (admin/present_api.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pidgate.events.definitions import LifecyclePhase
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.present import words
from pidgate.gateway.present.acting import change_as_json
from pidgate.gateway.present.connections import ConnectionRows, Connections
from pidgate.gateway.present.explaining import Moment, explanation
from pidgate.gateway.present.limits import LimitRow, LimitWatch
from pidgate.gateway.present.pages import Page
from pidgate.gateway.present.slowness import Slowness
from pidgate.gateway.present.user_words import sentences
from pidgate.gateway.present.users import UserRows, Users
from pidgate.gateway.present.waits import WaitRow, Waits
from pidgate.gateway.proxy.connection import Shared
from pidgate.gateway.quotas.origins import QuotaOrigins
from pidgate.gateway.quotas.reloading import Reloading
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.state.fleet import Fleet
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.changes import ALL_MODES, Change, Setting
from pidgate.quota.entities import User, shown
from pidgate.quota.fuse import is_by_fuse
from pidgate.quota.settings import Mode
from pidgate.units import about_duration, counted, listed, moment
from pidgate.version import version

MOST_ROWS: Final = 200
"""Of a table in an answer: more rows are found by the filter."""
LONG_WAIT_MS: Final = 60_000
GIVES_UP_SOON_MS: Final = 90_000
HIT_LATELY_MS: Final = 300_000
SILENT_MS: Final = 45_000
"""Gateways write every 30 s that they live."""

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that needs attention. `loses`: a client loses records, or is about to. `user`: its page says more.

    `page`: of the docs.
    """

    loses: bool
    text: str
    page: Page
    user: User | None = None


class Present:
    """Views of the present, as JSON. `readiness`: empty while the gateway is ready, else the reason why not."""

    def __init__(
        self,
        settings: Settings,
        shared: Shared,
        quotas: QuotaStore,
        manager: QuotaStateManager,
        reloading: Reloading,
        limits: LimitWatch,
        slowness: Slowness,
        readiness: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._shared = shared
        self._manager = manager
        self._reloading = reloading
        self._limits = limits
        self._slowness = slowness
        self._readiness = readiness
        self.quotas = quotas
        self.state = shared.admission.state
        self.recent = manager.events.recent
        self.names = manager.names
        self.now_ms = shared.now_ms
        self.users = Users(shared)
        self.waits = Waits(shared)
        self.connections = Connections(shared)

    def moment(self) -> Moment:
        return Moment(self.now_ms(), wall_ms())

    @property
    def gateway_id(self) -> str:
        return self._settings.gateway_id

    @property
    def has_topic(self) -> bool:
        """Return whether this gateway knows others, by the events topic."""
        return self._settings.events.enabled

    @property
    def fleet(self) -> Fleet:
        return self._manager.fleet

    @property
    def per_user_per_s(self) -> int:
        """limits.connections_rate_per_user."""
        return self._shared.connection_quotas.limits.per_user_per_s

    @property
    def brokers(self) -> int:
        """Number of brokers that are known."""
        return len(self._shared.counters.broker_up)

    def tell_fleet(self, phase: LifecyclePhase, text: str) -> None:
        """Write a question to the other gateways, or the answer to theirs."""
        self._manager.publish_phase(phase, text=text)

    def sticky_entries(self, user: User) -> int:
        return self._shared.admission.sticky.count_entries(user)

    # ---- views -----------------------------------------------------------------------------------------

    async def first(self, *, find: str = "", sort: str = "hurt") -> JsonObject:
        """Return the first screen: alerts, who waits, users."""
        now = self.moment()
        waits = await self.waits.rows(now)
        users = await self.users.rows(self.quotas.in_force, now, waits, most=MOST_ROWS, find=find, sort=sort)
        limits = self._limits.rows(now)
        return {
            "head": self.head(now, waits, users),
            "alerts": [as_json(alert) for alert in self.alerts(now, waits, limits)],
            "waits": rows_of(waits),
            "users": {**as_json(users), "rows": [as_json(row) for row in users.rows]},
        }

    async def waiting(self) -> JsonObject:
        """Return who waits, and every limit."""
        now = self.moment()
        waits = await self.waits.rows(now)
        return {
            "gateway": self._settings.gateway_id,
            "wall_ms": now.wall_ms,
            "waits": rows_of(waits),
            "limits": [as_json(row) for row in self._limits.rows(now)],
        }

    async def user(self, user: User) -> JsonObject:
        """Return one user: its quotas in force and why, its waiting clients, its connections."""
        now, in_force = self.moment(), self.quotas.in_force
        waits = await self.waits.rows(now, user)
        connections = await self.connections.rows(now, most=MOST_ROWS, only_user=user)
        state = explanation(
            user,
            None,
            state=self.state,
            in_force=in_force,
            moment=now,
            sticky_entries=self.sticky_entries(user),
        )
        changed = [change_as_json(change) for change in in_force.changes if change.target.user == user]
        return {
            "head": self.head(now),
            "row": as_json(self.users.row(user, in_force, now, waits)),
            "lines": list(sentences(state)),
            "changes": changed,
            "waits": rows_of(waits),
            "connections": _table(connections),
        }

    async def around(self, *, find: str = "", sort: str = "throttle") -> JsonObject:
        """Return gateways, brokers, limits and connections."""
        now = self.moment()
        connections = await self.connections.rows(now, most=MOST_ROWS, find=find, sort=sort)
        return {
            "head": self.head(now),
            "gateways": self._gateways(now),
            "brokers": [as_json(row) for row in connections.brokers],
            "limits": [as_json(row) for row in self._limits.rows(now)],
            "connections": _table(connections),
        }

    # ---- parts -----------------------------------------------------------------------------------------

    def head(
        self, now: Moment, waits: list[WaitRow] | None = None, users: UserRows | None = None
    ) -> JsonObject:
        """Return what every screen begins with."""
        settings, counters = self._settings, self._shared.counters
        up = counters.broker_up
        oldest = min((row.since_wall_ms for row in waits or ()), default=None)
        return {
            "gateway": settings.gateway_id,
            "cluster": settings.cluster.name,
            "version": version(),
            "wall_ms": now.wall_ms,
            "is_ready": not self._readiness(),
            "not_ready": self._readiness(),
            "gateways": 1 + len(self._manager.fleet),
            "acts_on": self.acts_on,
            "brokers": len(up),
            "brokers_up": sum(up.values()),
            "mode": QuotaOrigins(self.quotas.in_force, now.wall_ms).own(*ALL_MODES).as_json(),
            "is_writable": settings.admin.writable,
            "window_ms": self.quotas.in_force.quotas.producer_ids.window_ms,
            "states": self._states(now),
            "id_blocks": self._id_blocks(now),
            "connections": counters.connections_open,
            "muted": counters.muted_connections,
            "loop_late": round(sum(self._slowness.of_loop(now.now_ms)), 3),
            "waiting": None if waits is None else len(waits),
            "oldest_wait_ms": None if oldest is None else now.wall_ms - oldest,
            "new_per_s": None if users is None else round(users.new_per_s, 2),
            "refused_1h": None if users is None else users.refused_1h,
            "is_unused": not counters.connections_total,
            "listeners": [str(listener.bind) for listener in settings.listeners],
        }

    def _states(self, now: Moment) -> JsonObject | None:
        """Return the producer states of the fullest broker, and the users that the fuse enforces."""
        fullest = self.state.states.fullest(now.now_ms)
        if fullest is None:
            return None
        return {
            **as_json(fullest),
            "capacity": self.quotas.in_force.quotas.fuse,
            "enforced": [change.target.user for change in self._by_fuse()][:MOST_ROWS],
        }

    def _id_blocks(self, now: Moment) -> JsonObject | None:
        """Return how fast the cluster uses up producer ids, once a broker has given one."""
        recorder = self._shared.recorder
        if recorder is None or recorder.id_blocks.newest < 0:
            return None
        begun_1h = recorder.id_blocks.begun_1h(now.now_ms)
        years_left = recorder.id_blocks.years_left(now.now_ms)
        says = words.id_blocks(begun_1h, years_left)
        return {"begun_1h": begun_1h, "years_left": years_left, "says": says}

    def _by_fuse(self) -> list[Change]:
        return [change for change in self.quotas.in_force.changes if is_by_fuse(change)]

    @property
    def acts_on(self) -> int:
        """Number of gateways that a change reaches: all, while the topic of quotas works."""
        reaches = self._settings.events.enabled and self.quotas.is_read and not self.quotas.last_failure
        return 1 + len(self._manager.fleet) if reaches else 1

    def alerts(self, now: Moment, waits: list[WaitRow], limits: list[LimitRow]) -> Iterator[Alert]:
        """Yield what needs attention, worst first."""
        if reason := self._readiness():
            yield Alert(True, f"The gateway is not ready: {reason}", Page.NOT_READY)
        yield from _wait_alerts(now, waits)
        if self._shared.counters.quota_failed_open:
            yield Alert(
                False,
                "The quota's code raised an error, and requests passed undecided (quota_failed_open)",
                Page.FAILED_OPEN,
            )
        yield from self._slowness_alerts(now)
        yield from self._configuration_alerts(now)
        yield from self._topic_alerts()
        for member in self._manager.fleet.members():
            silent_ms = now.now_ms - member.latest_ms
            if silent_ms >= SILENT_MS:
                yield Alert(
                    False,
                    f"Gateway {member.gateway_id} was last heard {about_duration(silent_ms)} ago",
                    Page.MEMBER_SILENT,
                )
        for row in limits:
            if row.last_hit_wall_ms is not None and now.wall_ms - row.last_hit_wall_ms < HIT_LATELY_MS:
                ago = about_duration(now.wall_ms - row.last_hit_wall_ms)
                yield Alert(False, f"{row.name} was hit {ago} ago: {row.beyond}", Page.LIMIT_HIT)

    def _slowness_alerts(self, now: Moment) -> Iterator[Alert]:
        """Yield this gateway if it is slow, else slow brokers: a slow gateway measures its own time as theirs."""
        for node_id, is_up in sorted(self._shared.counters.broker_up.items()):
            if not is_up:
                yield Alert(True, f"Broker {node_id} does not answer", Page.BROKER_DOWN)
        loop = self._slowness.of_loop(now.now_ms)
        if loop.is_slow:
            why = "it had no core" if loop.no_core > loop.busy else "it was at work, or stopped"
            text = f"This gateway is slow: late for {loop.busy + loop.no_core:.0%} of the last 10 s ({why})"
            yield Alert(False, text, Page.LOOP_SLOW)
            return
        for node_id, answer_s in self._slowness.slow_brokers().items():
            text = f"Broker {node_id} is slow: it answered the gateway's own question after {answer_s:.1f} s"
            yield Alert(False, text, Page.BROKER_SLOW)

    def _configuration_alerts(self, now: Moment) -> Iterator[Alert]:
        reloading, in_force = self._reloading, self.quotas.in_force
        if not reloading.is_last_good:
            since = moment(reloading.last_good_wall_ms)
            yield Alert(
                False,
                f"The configuration file is refused: that of {since} holds (config_refused in the log)",
                Page.RELOAD_REFUSED,
            )
        if reloading.restart_needed:
            keys = ", ".join(sorted({one.key for one in reloading.restart_needed})[:3])
            yield Alert(False, f"Settings of the file wait for a restart: {keys}", Page.RESTART_NEEDED)
        switch = QuotaOrigins(in_force, now.wall_ms).own(*ALL_MODES)
        if switch.source == "run_time" and switch.value is Mode.OBSERVE:
            yield Alert(
                False,
                "Every user is observed: the emergency switch is on (pidgate mode file --all ends it)",
                Page.ALL_OBSERVED,
            )
        if enforced := self._by_fuse():
            users = listed([shown(change.target.user or "") for change in enforced])
            yield Alert(
                False,
                f"The fuse enforces {users}: {enforced[0].note}",
                Page.FUSE,
                enforced[0].target.user,
            )
        if self._manager.grace_left_ms:
            left = about_duration(self._manager.grace_left_ms)
            yield Alert(
                False, f"Grace for {left} more: new ids pass uncharged, up to ten times the rate", Page.GRACE
            )
        graces = [
            change for change in in_force.changes if change.target.setting is Setting.GRACE and change.value
        ]
        for change in graces[:3]:
            whose = "all users" if change.target.user is None else shown(change.target.user)
            yield Alert(
                False,
                f"Grace for {whose} until {moment(change.until_wall_ms or 0)}",
                Page.GRACE,
                change.target.user,
            )

    def _topic_alerts(self) -> Iterator[Alert]:
        publisher = self._manager.events.publisher
        if publisher is not None and publisher.last_failure:
            yield Alert(
                False,
                f"The events topic cannot be written: {publisher.last_failure}",
                Page.TOPIC_UNAVAILABLE,
            )
        if publisher is not None and publisher.dropped:
            yield Alert(
                False,
                f"{counted(publisher.dropped, 'event')} dropped: the events topic was too slow",
                Page.EVENTS_LOST,
            )
        if self.quotas.last_failure:
            yield Alert(
                False,
                f"The quotas topic fails, changes stay here: {self.quotas.last_failure}",
                Page.CHANGES_STAY,
            )

    def _gateways(self, now: Moment) -> list[JsonObject]:
        """Return this gateway, and the others as the events topic shows them."""
        own = {"gateway": self._settings.gateway_id, "is_own": True, "heard_ms": 0, "version": version()}
        others = [
            {
                "gateway": member.gateway_id,
                "is_own": False,
                "heard_ms": now.now_ms - member.latest_ms,
                "version": "",
            }
            for member in self._manager.fleet.members()
        ]
        return [own, *sorted(others, key=lambda row: str(row["gateway"]))]


def as_json(row: Any) -> JsonObject:
    """Return a row's fields. dataclasses.asdict copies every value, which takes ten times as long."""
    return {name: getattr(row, name) for name in row.__slots__}


def rows_of(waits: list[WaitRow]) -> JsonObject:
    """Return the first rows, and how many there are."""
    return {"rows": [as_json(row) for row in waits[:MOST_ROWS]], "total": len(waits)}


def _table(connections: ConnectionRows) -> JsonObject:
    return {
        "rows": [as_json(row) for row in connections.rows],
        "total": connections.total,
        "matching": connections.matching,
    }


def _wait_alerts(now: Moment, waits: list[WaitRow]) -> Iterator[Alert]:
    """Yield an alert for each user whose clients are about to lose records, or wait for long."""
    told: set[User] = set()
    for row in waits:
        if row.user in told:
            continue
        of_user = counted(sum(other.user == row.user for other in waits), "client")
        library = f" ({row.library})" if row.library else ""
        left_ms = None if row.gives_up_wall_ms is None else max(0, row.gives_up_wall_ms - now.wall_ms)
        if left_ms is not None and left_ms <= GIVES_UP_SOON_MS:
            left = about_duration(left_ms)
            yield Alert(
                True,
                f"{row.name}: {of_user} waiting, the first gives up in {left}{library}",
                Page.WAITS_LONG,
                row.user,
            )
        elif now.wall_ms - row.since_wall_ms >= LONG_WAIT_MS:
            since = about_duration(now.wall_ms - row.since_wall_ms)
            yield Alert(
                False, f"{row.name}: {of_user} waiting, the longest for {since}", Page.WAITS_LONG, row.user
            )
        else:
            continue
        told.add(row.user)
