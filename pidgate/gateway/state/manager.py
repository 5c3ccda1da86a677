"""The one quota state: restored at the start, kept over restarts and in step with other gateways.

`state` answers from the first moment on. While it is being restored, every id passes and is noted. Then enforcing
begins. The state comes from the snapshot of the state directory and the events published since. Without either the
start is a cold one: every running producer looks new, and `grace` says for how long new ids pass uncharged.

The events topic is the memory. A snapshot avoids reading it from far back, and holds state missing in the
topic: it is taken every few seconds without a topic, or while the topic lacks events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

from pidgate.events.definitions import ConfigEvent, LifecycleEvent, LifecyclePhase, RestoredFrom
from pidgate.events.redaction import UserNames
from pidgate.gateway.clock import monotonic_ms, next_tick, wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, begun_anew, guarded, log_mistake, logger
from pidgate.gateway.recording.config_event import Provenance
from pidgate.gateway.recording.recorder import Recorder
from pidgate.gateway.state.cold_start import GAP_MS, ColdStart
from pidgate.gateway.state.event_applier import EventApplier
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.fleet import Fleet, FleetChange, OwnSettings
from pidgate.gateway.state.handing_over import hand_over
from pidgate.gateway.state.redacted_users import under_their_names
from pidgate.gateway.state.shared_states import take_states, told_states
from pidgate.gateway.state.state_dir import About, Loaded, StateDir
from pidgate.gateway.topics.follower import StartAt
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.changes import Command
from pidgate.quota.entities import User, resolve
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import UserState

log = logger()

TOPIC_PATIENCE_S: Final = 20.0
"""Without any progress in reading the topic for this long, the gateway continues with the state it has."""
PORTION: Final = 200
"""Records, or users, between two turns of the event loop."""
ALIVE_EVERY_S: Final = 30.0
SAVE_EVERY_S: Final = 300.0
"""While the topic has all events: a restart reads the later ones in a few seconds."""
SAVE_UNSENT_EVERY_S: Final = 4.0
"""Interval while the topic lacks events. With the tick and the write this keeps the promised 5 s."""
SAVE_AGAIN_AFTER_S: Final = 10.0
"""After a failed save."""
QUOTAS_EVERY_S: Final = 1800.0
"""The quotas in force are published this often, so that the events of any hour contain them."""
_NOTHING_KNOWN: Final = "nothing is remembered: every running producer looks new"
_GAP: Final = "no gateway ran for ten minutes or longer: producers that started in that time look new"
LAST_EVENTS_S: Final = 2.0
"""Time for the topic to take the last events, at a stop."""


class StateObserver(Protocol):
    """Notified when another gateway refuses an id."""

    @property
    def is_reached(self) -> bool:
        """Return whether the cluster has answered. Before that nothing is served, so waiting costs nothing."""

    async def quotas_read(self) -> None:
        """Wait for the quotas set at run time: they say how far back to read, and the price of an id."""

    def refused_elsewhere(self, user: User, producer_id: int, now_ms: int) -> None: ...


class QuotaStateManager:
    """`open`, `start`, `stop`. `state` answers from the first moment on.

    `run`: common prefix of this gateway's incarnations. `secrets`: of filters, 128 random bits each.
    """

    def __init__(
        self,
        settings: Settings,
        provenance: Mapping[str, Provenance],
        events: EventLog,
        recorder: Recorder | None,
        observer: StateObserver,
        run: str,
        secrets: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._run = run
        self._ids = settings.quotas.producer_ids
        self._loop = asyncio.get_running_loop()
        self._now_ms = monotonic_ms(self._loop)
        self.events = events
        self._recorder = recorder
        self._observer = observer
        self._watch = observer.refused_elsewhere
        self.progress = "what is remembered has not been read yet"
        self.names = UserNames(settings.events.redact, settings.quotas.named())
        self._provenance = provenance
        self._is_started = False
        former_name = self.names.meet if self.names.redacts else None
        self.state = ProducerIdQuota(
            settings.to_quotas(), secrets, self._now_ms(), is_restored=False, former_name=former_name
        )
        self._cold_start = ColdStart(self._ids, self.state, self._now_ms)
        self._clock_ahead_ms = self._now_ms() - wall_ms()
        """Decision clock minus wall clock, read once. It dates the restored state, and is published so that a
        replay can do the same."""
        self._applier = EventApplier(
            run,
            remember_ms=self._ids.remember_ms,
            counts_charges=settings.quotas.cluster_producer_ids_rate_milli is not None,
            user_of=self.names.user_of,
            on_gateway=self._gateway_event,
            on_mistake=lambda error: log_mistake("events topic", reason=f"an event: {error!r}"),
        )
        self.fleet = Fleet(OwnSettings(self._ids.window_ms, self._ids.remember_ms, settings.quotas.mode))
        self.on_fleet_event: Callable[[LifecycleEvent, int], None] = lambda _event, _age_ms: None
        """Called with another gateway's question or answer, and its age."""
        self._caught_up = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []

    @property
    def is_restored(self) -> bool:
        """True once the state decides: before that everything passes."""
        return self.state.is_restored

    @property
    def unreadable_events(self) -> int:
        """Unreadable events of the topic."""
        return self._applier.unreadable

    @property
    def grace_left_ms(self) -> int:
        """Remaining time in which unseen ids are admitted uncharged; 0 without a grace, or once it is ended for all."""
        is_ended = self.state.in_force.value.default.grace_milli == 0
        return 0 if is_ended else self._cold_start.grace_left_ms

    def open(self) -> None:
        """Lock the state directory, before serving. Raises StateDirInUse."""
        if self.events.state_dir is not None:
            self.events.state_dir.lock()

    def start(self) -> None:
        """Restore, then keep the state, in the background.

        Without topic and directory the state is ready at once.
        """
        self._is_started = True
        self.publish_phase("start")
        if self._recorder is not None:
            self._recorder.quotas_set(self.state.in_force.value, self._now_ms(), self._provenance)
        if self.events.state_dir is None and self.events.follower is None:
            self._cold_start.begin(_NOTHING_KNOWN)
            self._take_over("nothing", 0.0)
        else:
            self._background.append(self._loop.create_task(guarded("state", self._restore())))
        if self.events.publisher is not None:
            self._background.append(
                self._loop.create_task(guarded("events topic", self.events.publisher.run()))
            )
        self._background.append(self._loop.create_task(begun_anew("state", self._keep)))
        if self.events.state_dir is not None:
            keep = partial(self._keep_snapshot, self.events.state_dir)
            self._background.append(self._loop.create_task(begun_anew("snapshot", keep)))

    def quotas_changed(self, provenance: Mapping[str, Provenance]) -> None:
        """Publish the quotas that were just put in force, and compare them with those of other gateways."""
        self._provenance = provenance
        now_ms, quotas = self._now_ms(), self.state.in_force.value
        ids = quotas.producer_ids
        self.fleet.set_own(OwnSettings(ids.window_ms, ids.remember_ms, quotas.mode.value), now_ms)
        if self._is_started and self._recorder is not None:
            self._recorder.quotas_set(quotas, now_ms, provenance)

    def apply(self, command: Command) -> None:
        """Apply an administrator's command, given here or at another gateway."""
        self.state.apply(command, self._now_ms())

    async def stop(self) -> None:
        """Publish the stop, wait up to LAST_EVENTS_S for the topic, and save the state."""
        self.publish_phase("stop", producer_states=told_states(self.state.states, self._now_ms()))
        if self.events.publisher is not None:
            await guarded("last events", self.events.publisher.flush(LAST_EVENTS_S))
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self.events.state_dir is not None:
            directory = self.events.state_dir
            await directory.close(self._save(directory) if self.is_restored else None)

    # ---- restoring -------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Restore the state, and end restoring even if that fails: until then nothing is refused."""
        began_s = self._loop.time()
        loaded: Loaded | None = None
        with self._going_on():
            await self._observer.quotas_read()
            loaded = await self._restore_from_directory()
        with self._going_on():
            await self._restore_from_topic(loaded)
        with self._going_on():
            self._applier.finish_restore(self.state.restorer)
        with self._going_on():
            snapshot_until_ms = loaded.grace_until_wall_ms if loaded is not None else 0
            for until_wall_ms in (snapshot_until_ms, self._applier.history.grace_until_wall_ms):
                reason = "a grace that had begun before the restart goes on"
                self._cold_start.share(until_wall_ms, reason, is_restored=False)
            if not self._is_fresh(loaded, GAP_MS) and not self._ends_cold_starts():
                is_known = self._source(loaded) != "nothing"
                self._cold_start.begin(_GAP if is_known else _NOTHING_KNOWN)
        with self._going_on():
            await hand_over(self.state, self._now_ms)
        with self._going_on():
            self._take_over(self._source(loaded), self._loop.time() - began_s)

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        """Log any exception and continue: the gateway must start whatever is wrong with the stored state."""
        try:
            yield
        except Exception as error:
            log.exception(Event.STATE_NOT_RESTORED, reason=str(error), remedy="look at the lines above")

    def _source(self, loaded: Loaded | None) -> RestoredFrom:
        """Return the source of the restored state."""
        if self._applier.history.is_known:
            return "topic"
        return "state_dir" if self._is_fresh(loaded, self._ids.remember_ms) else "nothing"

    def _is_fresh(self, loaded: Loaded | None, within_ms: int) -> bool:
        """Return whether there is a snapshot that was written within this time."""
        written_wall_ms = loaded.written_wall_ms if loaded is not None else None
        return written_wall_ms is not None and wall_ms() - written_wall_ms < within_ms

    def _ends_cold_starts(self) -> bool:
        """Return whether a gateway with a state ran until a moment ago, by the topic, and is in no grace."""
        return self._applier.history.ends_cold_starts(self._now_ms() - GAP_MS, wall_ms())

    async def _restore_from_directory(self) -> Loaded | None:
        directory = self.events.state_dir
        if directory is None:
            return None
        loaded = await directory.in_thread(directory.load)
        restorer = self.state.restorer
        with loaded.passing_over():
            restorer.import_cluster_bucket(
                loaded.cluster_bucket, self._written_ms(loaded.written_wall_ms or 0)
            )
        grace_goes_on = loaded.grace_until_wall_ms > wall_ms()
        for number, (user, written_wall_ms) in enumerate(under_their_names(self.names, loaded.users)):
            with loaded.passing_over():
                counts_grace = grace_goes_on or resolve(self.state.in_force.value, user.user).grace_milli
                restorer.import_user(
                    user if counts_grace else user.without_grace(), self._written_ms(written_wall_ms)
                )
            if number % PORTION == 0:
                await asyncio.sleep(0)
        loaded.users.clear()
        if loaded.about is not None and loaded.is_whole:
            self._applier.saved_until = loaded.about.incarnation.encode(), loaded.about.seq
        return loaded

    def _written_ms(self, written_wall_ms: int) -> int:
        """Return the time, on the clock of decisions, at which a part of the snapshot was written."""
        return self._now_ms() - max(0, wall_ms() - written_wall_ms)

    async def _restore_from_topic(self, loaded: Loaded | None) -> None:
        follower = self.events.follower
        if follower is None:
            return
        self.progress = "the events topic is being read"
        # Read further back than `remember`: an id published then may have been used since without an event.
        offsets = dict(loaded.offsets) if loaded is not None else {}
        start = StartAt(offsets, wall_ms() - self.state.table.history_ms)
        following = follower.run(start, self._records_arrived, self._topic_caught_up)
        self._background.append(self._loop.create_task(guarded("events topic", following)))
        seen = -1
        while not self._caught_up.is_set():
            if follower.followed == seen and self._observer.is_reached:
                reason = follower.last_failure or f"nothing came for {TOPIC_PATIENCE_S:.0f} s"
                remedy = "see the line about the events topic"
                log.error(Event.STATE_NOT_RESTORED, reason=reason, remedy=remedy)
                return
            seen = follower.followed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TOPIC_PATIENCE_S):
                    await self._caught_up.wait()

    def _records_arrived(self, records: list[EventRecord]) -> None:
        now_ms = self._now_ms()
        if self._caught_up.is_set():
            self._applier.follow(records, self.state, self._watch, now_ms)
        else:
            by_wall_ms = now_ms - self._clock_ahead_ms
            self._applier.restore(records, self.state.restorer, now_ms, by_wall_ms, self._watch)

    def _topic_caught_up(self) -> None:
        self._caught_up.set()
        if self.is_restored and self._ends_cold_starts() and self._cold_start.grace_left_ms:
            # It could not be read at the start, which therefore counted as cold.
            self._cold_start.end("the events topic can be read now and contains the state")

    def _gateway_event(self, event: LifecycleEvent | ConfigEvent, at_ms: int) -> None:
        """Apply a lifecycle or config event of a gateway, possibly of an earlier run of this one."""
        now_ms = self._now_ms()
        for change in self.fleet.take(event, at_ms, now_ms):
            self._fleet_changed(change)
        if isinstance(event, ConfigEvent):
            return
        if event.phase in ("asked", "answered"):
            self.on_fleet_event(event, now_ms - at_ms)
        take_states(event, self.state.states, at_ms, now_ms)
        if event.grace_until_wall_ms is not None:
            reason = f"{event.gateway_id} is in its grace"
            self._cold_start.share(event.grace_until_wall_ms, reason, is_restored=self.is_restored)

    def _take_over(self, restored_from: RestoredFrom, seconds: float) -> None:
        # In one turn of the event loop: an id that passed in between would be forgotten.
        with self._going_on():
            self.state.hand_over(self._now_ms())
        self.state.end_restoring()
        self.state.pairs_free_until_ms = self._now_ms() + self._ids.grace_ms
        users, now_ms = self.state.users(), self._now_ms()
        log.info(
            Event.STATE_RESTORED,
            users=len(users),
            restored_from=restored_from,
            waited_ms=round(seconds * 1000),
            unreadable=self._applier.unreadable,
        )
        self.publish_phase(
            "caught_up",
            restored_from=restored_from,
            restored_users=len(users),
            restored_ids=sum(self.state.status(user, now_ms).live_ids for user in users),
        )

    # ---- keeping ---------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Once a second: check for silent gateways, publish the "alive" event and the quotas when due."""
        alive_at_s = quotas_at_s = self._loop.time()
        while True:
            await next_tick()
            now_s = self._loop.time()
            try:
                for change in self.fleet.sweep(self._now_ms()):
                    self._fleet_changed(change)
                if now_s - alive_at_s >= ALIVE_EVERY_S:
                    alive_at_s = now_s
                    self.publish_phase(
                        "alive", producer_states=told_states(self.state.states, self._now_ms())
                    )
                if now_s - quotas_at_s >= QUOTAS_EVERY_S and self._recorder is not None:
                    quotas_at_s = now_s
                    self._recorder.publish_quotas(self._now_ms())
            except Exception as error:
                log.exception(Event.UNEXPECTED_ERROR, reason=f"keeping the quota's state: {error}")

    async def _keep_snapshot(self, directory: StateDir) -> None:
        """Take a snapshot as soon as the state is restored, then as often as the topic requires."""
        due_at_s, is_needed = 0.0, True
        saved_at_s = -SAVE_EVERY_S
        while True:
            await next_tick()
            is_needed |= self.events.lacks_events()
            now_s = self._loop.time()
            every_s = SAVE_UNSENT_EVERY_S if is_needed else SAVE_EVERY_S
            if self.is_restored and now_s >= max(due_at_s, saved_at_s + every_s):
                saved_at_s = now_s
                is_needed = not await self._save(directory)
                due_at_s = self._loop.time() + SAVE_AGAIN_AFTER_S if is_needed else 0.0

    async def _save(self, directory: StateDir) -> bool:
        now_ms, restorer = self._now_ms(), self.state.restorer

        def export(changed_only: bool) -> Iterator[UserState | None]:
            return restorer.export_changed(now_ms) if changed_only else restorer.export_users(now_ms)

        about = About(
            wall_ms(),
            dict(enumerate(self.events.applied_offsets)),
            self._cold_start.grace_until_wall_ms,
            restorer.export_cluster_bucket(now_ms),
            self._run,
            0 if self._recorder is None else self._recorder.seq,
        )
        return await directory.save(export, about)

    def _fleet_changed(self, change: FleetChange) -> None:
        member = {"gateway_id": change.gateway_id, "incarnation": change.incarnation}
        if change.kind == "seen":
            self.state.in_fleet = True
            log.info(Event.FLEET_MEMBER_SEEN, **member)
            self.publish_phase("member_seen", text=change.gateway_id)
        elif change.kind == "gone":
            log.warning(Event.FLEET_MEMBER_GONE, reason=change.reason, **member)
            self.publish_phase("member_gone", text=f"{change.gateway_id}: {change.reason}")
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
            self.publish_phase("member_seen", text=f"{change.gateway_id}: {difference}")

    def publish_phase(self, phase: LifecyclePhase, **fields: Any) -> None:
        """Publish a lifecycle event of this gateway, if events are written."""
        if self._recorder is not None:
            self._recorder.lifecycle(
                phase,
                grace_until_wall_ms=self._cold_start.grace_until_wall_ms,
                **fields,
            )
