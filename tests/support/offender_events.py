"""Users who each come by producer ids in one way, written by hand: what `pidgate pipeline offenders` has to tell."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field

from pidgate.events.definitions import ConnectionEvent
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
DAYS = 8
END_MS = START_MS + DAYS * DAY_MS
MIDNIGHT_MS = START_MS - START_MS % DAY_MS


@dataclass
class Scenes:
    """One history of eight days in which each user has a story."""

    stream: Stream = field(default_factory=Stream)
    chance: random.Random = field(default_factory=lambda: random.Random(936))

    def one(
        self,
        client: Client,
        at_ms: int,
        *,
        life_ms: int | None = 0,
        requests: int = 1,
        error: int | None = None,
        transactional_id_hash: str | None = None,
        close: str = "client",
        closed_after_ms: int = 30,
    ) -> None:
        """One producer; `life_ms` None: to the end of the history. Its connection is closed after its last use."""
        stream = self.stream
        connection = stream.connection()
        producer_id = stream.allocate(client, at_ms, connection_id=connection)
        name: dict[str, object] = {
            "transactional": transactional_id_hash is not None,
            "transactional_id_hash": transactional_id_hash,
        }
        stream.decide(client, at_ms, producer_id, "admit", "observe", connection_id=connection, **name)
        last_ms = END_MS if life_ms is None else min(END_MS, at_ms + life_ms)
        stream.use(client, producer_id, at_ms, last_ms, requests, connection_id=connection)
        if error is not None:
            stream.error(client, producer_id, last_ms + 20, error)
        if last_ms < END_MS:
            at_ms = last_ms + closed_after_ms
            told = {"phase": "close", "node_id": 1, "close_reason": close, "connection_id": connection}
            stream.make(ConnectionEvent, at_ms, client, **told)

    # What harms

    def restart_loop(self, client: Client, starts: int = 40, *, since_ms: int = START_MS + DAY_MS) -> None:
        """Kubernetes' back-off: 10, 20, 40, 80, 160 s, then 300 s; it runs for 3 to 8 s."""
        at_ms = since_ms
        for number in range(starts):
            life_ms = self.chance.randrange(3_000, 8_000)
            self.one(client, at_ms, life_ms=life_ms, requests=5)
            at_ms += life_ms + min(10_000 << number, 300_000) + 900

    def supervised(self, client: Client, starts: int = 40) -> None:
        """Runs for as long as it happens to, and is started again after 10 s."""
        at_ms = START_MS + DAY_MS
        for _ in range(starts):
            life_ms = int(self.chance.expovariate(1 / 60_000)) + 1_000
            self.one(client, at_ms, life_ms=life_ms, requests=1 + life_ms // 500)
            at_ms += life_ms + 10_000 + self.chance.randrange(800)

    def now_and_again(self, client: Client, close: str, starts: int = 30) -> None:
        """Runs for minutes, at no beat and without a supervisor's pauses; `close` says how its connections end."""
        at_ms = START_MS + DAY_MS
        for _ in range(starts):
            life_ms = int(self.chance.expovariate(1 / 300_000)) + 15_000
            self.one(client, at_ms, life_ms=life_ms, requests=40, close=close)
            at_ms += life_ms + 8 * MINUTE_MS + int(self.chance.expovariate(1 / 1_500_000))

    def crashing_beside(self, client: Client, processes: int = 3, starts: int = 40) -> None:
        """Processes with one client id at one address. Each runs for a random time and is restarted after 10 s."""
        for number in range(processes):
            at_ms = START_MS + DAY_MS + number * 17_000
            for _ in range(starts):
                run_ms = int(self.chance.expovariate(1 / 90_000)) + 4_000
                life_ms = self.chance.randrange(run_ms)
                self.one(client, at_ms, life_ms=life_ms, requests=3, closed_after_ms=run_ms - life_ms)
                at_ms += run_ms + 10_000 + self.chance.randrange(800)

    def pool(self, client: Client, workers: int = 4, tasks: int = 60) -> None:
        """Workers with one client id at one address, each of which takes a task when there is one."""
        for number in range(workers):
            at_ms = START_MS + DAY_MS + number * 17_000
            for _ in range(tasks):
                life_ms = self.chance.randrange(20_000, 200_000)
                self.one(client, at_ms, life_ms=life_ms, requests=20)
                at_ms += life_ms + int(self.chance.expovariate(1 / 30_000)) + 500

    def per_error(self, client: Client, errors: int = 40, *, told: bool = True) -> None:
        at_ms = START_MS + DAY_MS
        for _ in range(errors):
            life_ms = int(self.chance.expovariate(1 / 400_000)) + 5_000
            self.one(client, at_ms, life_ms=life_ms, requests=20, error=10 if told else None)
            at_ms += life_ms + self.chance.randrange(10, 900)

    def per_batch(
        self,
        client: Client,
        batches: int = 200,
        *,
        requests: int = 1,
        since_ms: int = START_MS + DAY_MS,
    ) -> None:
        at_ms = since_ms
        for number in range(batches):
            named = Client(user=client.user, client_id=f"{client.client_id}-{number}", address=client.address)
            self.one(named, at_ms, life_ms=120 * (requests - 1), requests=requests)
            at_ms += int(self.chance.expovariate(1 / 20_000))

    def per_batch_in_pods(self, user: str, batches: int = 200) -> None:
        """Each producer in a pod of its own, whose client id is a UUID."""
        at_ms = START_MS + DAY_MS
        for number in range(batches):
            drawn = str(uuid.UUID(int=self.chance.getrandbits(128)))
            self.one(Client(user=user, client_id=drawn, address=f"10.3.0.{number}"), at_ms)
            at_ms += int(self.chance.expovariate(1 / 20_000))

    def flushes(self, client: Client, every_ms: int = 60_000, flushes: int = 400) -> None:
        """A log shipper: a producer for each chunk, by a timer that wanders, when there is something to send."""
        at_ms = START_MS + DAY_MS
        for _ in range(flushes):
            at_ms += every_ms + self.chance.randrange(5, 300)
            if self.chance.random() < 0.6:
                self.one(client, at_ms, life_ms=self.chance.randrange(30, 400), requests=2)

    def kept_alive(self, client: Client, connections: int = 200) -> None:
        """A bridge: a producer for each HTTP connection, which is closed when it was idle for a minute."""
        at_ms = START_MS + DAY_MS
        for number in range(connections):
            named = Client(user=client.user, client_id=f"{client.client_id}-{number}", address=client.address)
            requests = self.chance.randrange(1, 5)
            self.one(named, at_ms, life_ms=20_000 * (requests - 1), requests=requests, closed_after_ms=60_000)
            at_ms += int(self.chance.expovariate(1 / 40_000))

    def events_of_tasks(self, client: Client, every_ms: int = 30 * MINUTE_MS) -> None:
        """Fourteen tasks by the clock, each of which opens a producer to say that it is done."""
        first_ms = START_MS - START_MS % every_ms + every_ms
        for run_ms in range(first_ms, END_MS - HOUR_MS, every_ms):
            at_ms = run_ms + 3_000
            for _ in range(14):
                self.one(client, at_ms, life_ms=self.chance.randrange(0, 300))
                at_ms += self.chance.randrange(4_000, 20_000)

    def random_transactional_ids(self, client: Client, starts: int = 60) -> None:
        at_ms = START_MS + DAY_MS
        for number in range(starts):
            self.one(
                client, at_ms, life_ms=40_000, requests=30, transactional_id_hash=f"{client.user}{number}"
            )
            at_ms += int(self.chance.expovariate(1 / 600_000)) + 45_000

    # What is healthy

    def steady(self, user: str, producers: int = 3) -> None:
        for number in range(producers):
            self.one(
                Client(user=user, client_id=f"api-{number}", address=f"10.1.0.{number}"),
                START_MS + number * 700,
                life_ms=None,
                requests=90_000,
            )

    def rolling(self, user: str, pods: int = 6, deployments: int = 2) -> None:
        """Each deployment replaces pod after pod, 40 s apart; every pod has a new address and client id."""
        times = [START_MS, *(START_MS + (2 + 3 * number) * DAY_MS for number in range(deployments))]
        self._replaced(user, "shop", "10.2", times, pods, requests=50_000)

    def _replaced(
        self, user: str, name: str, network: str, times: list[int], pods: int, *, requests: int
    ) -> None:
        """Pods that follow each other from each of these times on; those before them go some seconds later."""
        for number, at_ms in enumerate(times):
            until = times[number + 1] if number + 1 < len(times) else None
            for pod in range(pods):
                start_ms = at_ms + pod * 40_000
                client = Client(
                    user=user, client_id=f"{name}-{number}f{pod}c", address=f"{network}.{number}.{pod}"
                )
                life = None if until is None else until + pod * 40_000 + 15_000 - start_ms
                self.one(client, start_ms, life_ms=life, requests=requests)

    def released(self, user: str, pods: int = 5) -> None:
        """Three times a day every pod is replaced; of the producers one in three runs over night."""
        hours = [DAY_MS * day + HOUR_MS * hour for day in range(1, DAYS - 1) for hour in (10, 13, 16)]
        times = [START_MS, *(MIDNIGHT_MS + ms for ms in hours)]
        self._replaced(user, "web", "10.8", times, pods, requests=9_000)

    def seldom_used(self, user: str, pods: int = 6) -> None:
        """Pods that send something when they start, and nothing until they are replaced some days later."""
        times = [START_MS, START_MS + 2 * DAY_MS, START_MS + 5 * DAY_MS]
        for number, at_ms in enumerate(times):
            until_ms = times[number + 1] if number + 1 < len(times) else END_MS
            for pod in range(pods):
                start_ms = at_ms + pod * 60_000 + self.chance.randrange(55_000)
                client = Client(user=user, client_id=f"rare-{number}f{pod}c", address=f"10.9.{number}.{pod}")
                there_ms = until_ms + pod * 60_000 + 70_000 - start_ms
                self.one(client, start_ms, life_ms=5_000, requests=20, closed_after_ms=there_ms - 5_000)

    def autoscaling(self, user: str) -> None:
        """Two instances always, six more by day: added between 7 and 10, taken away between 17 and 21."""
        for number in range(2):
            self.one(
                Client(user=user, client_id="web", address=f"10.3.0.{number}"),
                START_MS,
                life_ms=None,
                requests=70_000,
            )
        for day in range(1, DAYS):
            for number in range(6):
                at_ms = (
                    MIDNIGHT_MS
                    + day * DAY_MS
                    + 7 * HOUR_MS
                    + number * 30 * MINUTE_MS
                    + self.chance.randrange(600_000)
                )
                until_ms = MIDNIGHT_MS + day * DAY_MS + 17 * HOUR_MS + number * 40 * MINUTE_MS
                client = Client(user=user, client_id="web", address=f"10.3.{day}.{number}")
                self.one(client, at_ms, life_ms=until_ms - at_ms, requests=9_000)

    def cron_job(self, user: str, every_ms: int = HOUR_MS) -> None:
        """Each run is a pod of its own, some seconds after the full hour."""
        first_ms = START_MS - START_MS % every_ms + every_ms
        for number, at_ms in enumerate(range(first_ms, END_MS - HOUR_MS, every_ms)):
            client = Client(user=user, client_id="nightly", address=f"10.4.{number // 200}.{number % 200}")
            self.one(client, at_ms + self.chance.randrange(2_000, 9_000), life_ms=90_000, requests=12)

    def shared_address(self, user: str, shops: int = 15) -> None:
        for number in range(shops):
            client = Client(user=user, client_id=f"shop{number}", address="192.0.2.1")
            half_ms = self.chance.randrange(2 * DAY_MS, 6 * DAY_MS)
            self.one(client, START_MS + number * 900, life_ms=half_ms, requests=4_000)
            self.one(client, START_MS + half_ms + 30_000, life_ms=None, requests=4_000)

    def shared_client_id(self, user: str, devices: int = 15) -> None:
        for number in range(devices):
            client = Client(user=user, client_id="rdkafka", address=f"10.5.0.{number}")
            half_ms = self.chance.randrange(2 * DAY_MS, 6 * DAY_MS)
            self.one(client, START_MS + number * 900, life_ms=half_ms, requests=4_000)
            self.one(client, START_MS + half_ms + 30_000, life_ms=None, requests=4_000)

    def office(self, user: str, client_id: str, address: str, machines: int = 14) -> None:
        """Machines of people: on at half past 8 or so, off in the evening. {} is the machine's number."""
        for day in range(1, DAYS):
            for number in range(machines):
                at_ms = MIDNIGHT_MS + day * DAY_MS + int(self.chance.gauss(8.5, 0.6) * HOUR_MS)
                client = Client(user=user, client_id=client_id.format(number), address=address.format(number))
                self.one(client, at_ms, life_ms=int(self.chance.gauss(8.5, 1) * HOUR_MS), requests=2_000)

    def export(self, user: str, executors: int = 6) -> None:
        """Every hour, by the clock, executors that start within a minute of each other; each run has new ones."""
        first_ms = START_MS - START_MS % HOUR_MS + HOUR_MS
        for run, at_ms in enumerate(range(first_ms, END_MS - HOUR_MS, HOUR_MS)):
            for number in range(executors):
                client = Client(
                    user=user, client_id=f"export-{run}x{number}q", address=f"10.7.{run}.{number}"
                )
                starts_ms = at_ms + self.chance.randrange(15_000, 60_000)
                self.one(client, starts_ms, life_ms=self.chance.randrange(200_000, 900_000), requests=50)

    def now_and_then(self, user: str, times: int = 30) -> None:
        """Somebody's experiments: at any time, for any time."""
        at_ms = START_MS + DAY_MS
        for _ in range(times):
            life_ms = int(self.chance.expovariate(1 / 600_000)) + 5_000
            self.one(Client(user=user, client_id="notebook"), at_ms, life_ms=life_ms, requests=40)
            at_ms += life_ms + int(self.chance.lognormvariate(14.5, 1.5))
