"""The quota's one state, and what keeps it over restarts and in step with other gateways.

From the first moment on `state` answers: while what is remembered is being read, an interim state lets everything
pass and notes it. Then the restored state takes over, and enforcing begins. What is remembered comes from the state
directory, then from the events topic, from where the directory left off; without either, or when both are empty, the
start is a cold one: every running producer looks new, and `cold_start` says what that means.

In a gateway of several processes this lives in the holder of the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import Any, Final

from pidgate.events import ConfigEvent, LifecycleEvent
from pidgate.events.definitions import LifecyclePhase, RestoredFrom
from pidgate.events.redaction import UserNames
from pidgate.gateway.clock import monotonic_ms, wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.recording.config_event import Provenance
from pidgate.gateway.recording.recorder import Recorder
from pidgate.gateway.recording.setup import provenance_of
from pidgate.gateway.state.applied_ranges import AppliedRanges
from pidgate.gateway.state.event_applier import EventApplier
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.state.fleet import Fleet, FleetChange, OwnSettings
from pidgate.gateway.state.publisher import EventPublisher
from pidgate.gateway.state.redacted_users import RedactedUsersQuota
from pidgate.gateway.state.state_dir import Loaded, StateDir
from pidgate.gateway.topics.follower import EventFollower, StartAt
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.changes import Command
from pidgate.quota.entities import User
from pidgate.quota.interim import InterimState
from pidgate.quota.layered_filter import kept_ms
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.state import QuotaState

log = logger()

TOPIC_PATIENCE_S: Final = 20.0
"""Without any progress in reading the topic, the gateway goes on with what it knows."""
PORTION: Final = 200
"""Records, or ids, between two turns of the event loop."""
ALIVE_EVERY_S: Final = 30.0
SAVE_EVERY_S: Final = 60.0
QUOTAS_EVERY_S: Final = 1800.0
"""So that whoever reads the events of the last hour finds the quotas that were in force."""
TICK_S: Final = 1.0
LAST_EVENTS_S: Final = 2.0
"""How long a stop waits for the topic to take the last events."""
_IS_DECISION: Final = b'"type":"decision"'
_TYPE_WITHIN_BYTES: Final = 48


class QuotaStateManager:
    """`open`, `start`, `stop`. `state` answers from the first moment on; `on_state` tells of its successor.

    `recorder` is set by whoever makes one for this process, before `start`.
    """

    def __init__(self, settings: Settings, run: str = "") -> None:
        self._settings = settings
        self._ids = settings.quotas.producer_ids
        self._loop = asyncio.get_running_loop()
        self._now_ms = monotonic_ms(self._loop)
        self.run = run or secrets.token_hex(6)
        self.recorder: Recorder | None = None
        self.on_state: Callable[[QuotaState], None] = lambda _state: None
        self.on_refused_elsewhere: Callable[[User, int, int], None] = lambda _user, _id, _now_ms: None
        self.on_topic_id: Callable[[bytes], None] = lambda _topic_id: None
        """Told of the events topic's id, 16 bytes: clients may not use it either."""
        self.is_reached: Callable[[], bool] = lambda: True
        """Whether the cluster has answered anybody: before that nothing is served, and waiting costs nothing."""
        self.is_restored = False
        self.progress = "what is remembered has not been read yet"
        self._names = UserNames(settings.events.redact, settings.quotas.users)
        self._quotas = settings.to_quotas()
        self._provenance: Mapping[str, Provenance] = provenance_of(settings)
        self._is_started = False
        self._real: ProducerIdQuota = RedactedUsersQuota(
            self._names, self._quotas, self.random_seed, self._now_ms()
        )
        self._interim = InterimState()
        self.state: QuotaState = self._interim
        self._grace_until_wall_ms: int | None = None
        self._clock_ahead_ms = self._now_ms() - wall_ms()
        """Decision clock minus wall clock, read once: it gives what is restored its place in time, and is told so
        that a replay can give it the same.
        """
        self.state_dir = StateDir(settings.state_dir) if settings.state_dir else None
        self.publisher: EventPublisher | None = None
        self.follower: EventFollower | None = None
        if settings.events.enabled:
            kafka, topic = OwnClient.from_settings(settings), EventTopic.from_settings(settings)
            topic.on_id = self._topic_id_known
            self.publisher = EventPublisher(kafka, topic)
            self.follower = EventFollower(kafka, topic)
        self._applier = EventApplier(
            self.run,
            self._ids.window_ms * 1000,
            began_wall_ms=wall_ms(),
            counts_charges=settings.quotas.cluster_producer_ids_rate_milli is not None,
            user_of=self._names.user_of,
            on_gateway=self._heard,
        )
        self.heard = AppliedRanges()
        """When other gateways' decisions came into the state, until a decision event tells it."""
        self.fleet = Fleet(OwnSettings(self._ids.window_ms, self._ids.remember_ms, settings.quotas.mode))
        self._has_history = False
        self._caught_up = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []

    @staticmethod
    def random_seed() -> int:
        """For a user's filter."""
        return secrets.randbits(32)

    @property
    def applied_offsets(self) -> list[int]:
        """By partition of the topic: what of other gateways' events is in the state."""
        return self.follower.applied_offsets if self.follower is not None else []

    @property
    def unreadable_events(self) -> int:
        """Events of the topic that could not be understood."""
        return self._applier.unreadable

    def publish(self, key: str, value: bytes) -> None:
        """An event, for the topic and, if it is a decision, for the journal. Neither waits nor raises."""
        if self.state_dir is not None and value.find(_IS_DECISION, 0, _TYPE_WITHIN_BYTES) >= 0:
            self.state_dir.append(value)
        if self.publisher is not None:
            self.publisher.publish(key, value)

    def open(self) -> None:
        """Take the state directory, before anything is served. Raises StateDirInUse."""
        if self.state_dir is not None:
            self.state_dir.take()

    def start(self) -> None:
        """Restore, then keep; in the background. Without anything that remembers, the state is there at once."""
        self._is_started = True
        self._tell("start")
        if self.recorder is not None:
            self.recorder.quotas_set(self._quotas, self._now_ms(), self._provenance)
        if self.state_dir is None and self.follower is None:
            self._begin_grace_when_cold()
            self._take_over("nothing", 0.0)
        else:
            self._background.append(self._loop.create_task(self._restore()))
        if self.publisher is not None:
            self._background.append(self._loop.create_task(self._guarded(self.publisher.run())))
        self._background.append(self._loop.create_task(self._keep()))

    def set_quotas(self, quotas: Quotas, provenance: Mapping[str, Provenance]) -> None:
        """These are in force from now on: for the state, also for one that is still being restored, and in events."""
        self._quotas, self._provenance = quotas, provenance
        now_ms, ids = self._now_ms(), quotas.producer_ids
        self._real.set_quotas(quotas, now_ms)
        self.fleet.set_own(OwnSettings(ids.window_ms, ids.remember_ms, quotas.mode.value), now_ms)
        if self._is_started and self.recorder is not None:
            self.recorder.quotas_set(quotas, now_ms, provenance)

    def apply(self, command: Command) -> None:
        """Somebody said so, here or at another gateway."""
        self._real.apply(command, self._now_ms())

    async def stop(self) -> None:
        """Say so, write down what is known, and let the topic take what it takes within LAST_EVENTS_S."""
        self._tell("stop")
        if self.publisher is not None:
            await self.publisher.flush(LAST_EVENTS_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self.state_dir is not None:
            if self.is_restored:
                await self._save()
            await self.state_dir.close()

    def worker_lost(self, worker: int) -> None:
        self._tell("worker_lost", text=f"worker {worker}")

    # ---- restoring -------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        began_s = self._loop.time()
        try:
            loaded = await self._restore_from_directory()
            await self._restore_from_topic(loaded)
        except Exception as error:
            # Whatever is wrong with what was written down: the gateway goes on without it.
            log.exception(Event.STATE_NOT_RESTORED, reason=str(error), remedy="look at the lines above")
            loaded = None
        self._applier.finish_restore(self._real)
        restored_from = self._source(loaded)
        if loaded is not None and loaded.grace_until_wall_ms is not None:
            self._share_grace(loaded.grace_until_wall_ms, "a grace that had begun before the restart goes on")
        if restored_from == "nothing":
            self._begin_grace_when_cold()
        # No turn of the event loop between the last one and taking over: who passed in it would be forgotten.
        while self._interim.hand_over(self._real, self._now_ms(), PORTION):  # noqa: ASYNC110
            await asyncio.sleep(0)
        self._take_over(restored_from, self._loop.time() - began_s)

    def _source(self, loaded: Loaded | None) -> RestoredFrom:
        """What the state was restored from; "nothing" means a cold start."""
        if self._has_history or self._applier.has_history:
            return "topic"
        written_wall_ms = loaded.written_wall_ms if loaded is not None else None
        # Without a snapshot a journal tells of some ids only: the start is a cold one.
        is_fresh = written_wall_ms is not None and wall_ms() - written_wall_ms < self._ids.remember_ms
        return "state_dir" if is_fresh else "nothing"

    async def _restore_from_directory(self) -> Loaded | None:
        if self.state_dir is None:
            return None
        loaded = await asyncio.to_thread(self.state_dir.load)
        written_ms = self._now_ms() - max(0, wall_ms() - (loaded.written_wall_ms or 0))
        if loaded.cluster_bucket is not None:
            self._real.import_cluster_bucket(loaded.cluster_bucket, written_ms)
        for number, user in enumerate(loaded.users):
            self._real.import_user(user, written_ms)
            if number % PORTION == 0:
                await asyncio.sleep(0)
        loaded.users.clear()
        while portion := await asyncio.to_thread(lambda: list(islice(loaded.journal, PORTION))):
            now_ms = self._now_ms()
            self._applier.restore_journal(
                portion, self._real, now_ms, now_ms - self._clock_ahead_ms, self.on_refused_elsewhere
            )
        return loaded

    async def _restore_from_topic(self, loaded: Loaded | None) -> None:
        follower = self.follower
        if follower is None:
            return
        self.progress = "the events topic is being read"
        # Further back than `remember`: an id that was told of then may have been used since without a word.
        kept = kept_ms(self._settings.to_quotas().producer_ids)
        start = StartAt(dict(loaded.offsets) if loaded else {}, wall_ms() - kept)
        following = self._loop.create_task(
            self._guarded(follower.run(start, self._records_arrived, self._topic_caught_up))
        )
        self._background.append(following)
        seen = -1
        while not self._caught_up.is_set():
            if follower.followed == seen and self.is_reached():
                reason = follower.last_failure or f"nothing came for {TOPIC_PATIENCE_S:.0f} s"
                remedy = (
                    "see the line about the events topic; until then the gateway goes on with what it knows"
                )
                log.error(Event.STATE_NOT_RESTORED, reason=reason, remedy=remedy)
                return
            seen = follower.followed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TOPIC_PATIENCE_S):
                    await self._caught_up.wait()

    def _records_arrived(self, records: list[EventRecord]) -> None:
        now_ms = self._now_ms()
        if self._caught_up.is_set():
            followed = self._applier.decisions
            self._applier.follow(records, self._real, self.on_refused_elsewhere, now_ms)
            if self._applier.decisions > followed:
                self.heard.applied(records, now_ms)
        else:
            restored_by_ms = now_ms - self._clock_ahead_ms
            self._applier.restore(records, self._real, now_ms, restored_by_ms, self.on_refused_elsewhere)

    def _topic_caught_up(self) -> None:
        self._caught_up.set()
        has_history = self._has_history or self._applier.has_history
        if self.is_restored and has_history and self.grace_left_ms:
            # It could not be read at the start, and its silence was taken for a cold one.
            self._grace_until_wall_ms = None
            self._real.begin_grace(0)
            log.warning(
                Event.GRACE_ENDED_EARLY,
                reason="the events topic can be read now, and tells what is remembered",
            )

    def _heard(self, event: LifecycleEvent | ConfigEvent, at_ms: int) -> None:
        """A gateway, perhaps an earlier run of this one, tells of itself."""
        for change in self.fleet.heard(event, at_ms, self._now_ms()):
            self._name(change)
        if isinstance(event, LifecycleEvent) and event.phase != "start":
            self._has_history = True
            if event.grace_until_wall_ms is not None:
                self._share_grace(event.grace_until_wall_ms, f"{event.gateway_id} is in its grace")

    def _topic_id_known(self, topic_id: bytes) -> None:
        self.on_topic_id(topic_id)

    def _take_over(self, restored_from: RestoredFrom, seconds: float) -> None:
        self.state = self._real
        self.is_restored = True
        self.on_state(self._real)
        users, now_ms = self._real.users(), self._now_ms()
        log.info(
            Event.STATE_RESTORED,
            users=len(users),
            restored_from=restored_from,
            waited_ms=round(seconds * 1000),
            unreadable=self._applier.unreadable,
        )
        self._tell(
            "caught_up",
            restored_from=restored_from,
            restored_users=len(users),
            restored_ids=sum(self._real.live_ids(user, now_ms) for user in users),
            clock_ahead_ms=self._clock_ahead_ms,
        )

    # ---- a cold start ----------------------------------------------------------------------------------

    def _share_grace(self, until_wall_ms: int, reason: str) -> None:
        """A restart does not end a grace, and gateways that start together share one.

        Whoever remembers already is not drawn into the grace of one that does not.
        """
        left_ms = until_wall_ms - wall_ms()
        if self.is_restored and not self.grace_left_ms:
            return
        if self._ids.cold_start == "grace" and self.grace_left_ms < left_ms <= self._ids.grace_ms:
            self._begin_grace(left_ms, reason)

    def _begin_grace_when_cold(self) -> None:
        if self._ids.cold_start == "grace" and not self.grace_left_ms:
            self._begin_grace(self._ids.grace_ms, "nothing is remembered: every running producer looks new")

    def _begin_grace(self, grace_ms: int, reason: str) -> None:
        self._grace_until_wall_ms = wall_ms() + grace_ms
        self._real.begin_grace(self._now_ms() + grace_ms)
        log.warning(Event.GRACE_BEGAN, reason=reason, grace_ms=grace_ms)

    @property
    def grace_left_ms(self) -> int:
        """How long unseen ids are still admitted uncharged; 0 without a grace."""
        return max(0, (self._grace_until_wall_ms or 0) - wall_ms())

    # ---- keeping ---------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Once a second: who else is there, a sign of life, the snapshot."""
        alive_at_s = saved_at_s = told_at_s = self._loop.time()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = self._loop.time()
            try:
                for change in self.fleet.sweep(self._now_ms()):
                    self._name(change)
                if now_s - alive_at_s >= ALIVE_EVERY_S:
                    alive_at_s = now_s
                    self._tell("alive")
                if now_s - told_at_s >= QUOTAS_EVERY_S and self.recorder is not None:
                    told_at_s = now_s
                    self.recorder.publish_quotas(self._now_ms())
                if self._is_to_save(now_s - saved_at_s):
                    await self._save()
                    saved_at_s = self._loop.time()
            except Exception as error:
                log.exception(Event.UNEXPECTED_ERROR, reason=f"keeping the quota's state: {error}")

    def _is_to_save(self, since_s: float) -> bool:
        return (
            self.state_dir is not None
            and self.is_restored
            and (since_s >= SAVE_EVERY_S or self.state_dir.needs_save)
        )

    async def _save(self) -> None:
        assert self.state_dir is not None
        now_ms = self._now_ms()
        await self.state_dir.save(
            self._real.export_users(now_ms),
            written_wall_ms=wall_ms(),
            cluster_bucket=self._real.export_cluster_bucket(now_ms),
            offsets=dict(enumerate(self.applied_offsets)),
            grace_until_wall_ms=self._grace_until_wall_ms,
        )

    def _name(self, change: FleetChange) -> None:
        """In the log, and on the topic."""
        member = {"gateway_id": change.gateway_id, "incarnation": change.incarnation}
        if change.kind == "seen":
            self._real.in_fleet = True
            log.info(Event.FLEET_MEMBER_SEEN, **member)
            self._tell("member_seen", text=change.gateway_id)
        elif change.kind == "gone":
            log.warning(Event.FLEET_MEMBER_GONE, reason=change.reason, **member)
            self._tell("member_gone", text=f"{change.gateway_id}: {change.reason}")
        else:
            log.error(
                Event.FLEET_MEMBER_DIFFERS,
                setting=change.setting,
                ours=change.ours,
                theirs=change.theirs,
                remedy="set it alike in all gateways of the cluster: the quota holds only as well as they agree",
                **member,
            )
            difference = f"{change.setting} is {change.theirs} there, {change.ours} here"
            self._tell("member_seen", text=f"{change.gateway_id}: {difference}")

    def _tell(self, phase: LifecyclePhase, **fields: Any) -> None:
        if self.recorder is not None:
            self.recorder.lifecycle(
                phase, grace_until_wall_ms=self._grace_until_wall_ms, workers=self._settings.workers, **fields
            )

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """What ends by itself is wrong, and must not end unheard."""
        try:
            await work
        except Exception as error:
            log.exception(Event.UNEXPECTED_ERROR, reason=f"the events topic: {error}")
