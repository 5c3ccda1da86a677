"""Every limit in the settings has its row: now, most, limit and last hit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.settings import LimitsSettings, Settings
from pidgate.gateway.present.explaining import Moment
from pidgate.gateway.present.limits import BEYOND, LimitRow, LimitWatch
from tests.support.scene import Scene

NO_LIMITS = {
    "quotas.producer_ids.window": "the length over which a rate counts",
    "quotas.producer_ids.burst": "part of each user's rate, whose tokens are in its row",
    "quotas.producer_ids.remember": "how long an id is known",
    "quotas.producer_ids.grace": "a time after a cold start; an alert says what is left of it",
    "quotas.producer_ids.max_throttle": "the length of an answer's throttle; each wait shows its end",
    "quotas.producer_ids.refuse_init_producer_id": "a switch",
    "quotas.default.producer_ids_rate": "of a user: its row",
    "quotas.default.transactional_ids_rate": "of a user: its page",
    "quotas.default.producer_states_rate": "of a user: its page",
    "quotas.default.producer_byte_rate": "of a user: its waits",
    "quotas.default.consumer_byte_rate": "of a user: its waits",
    "events.enabled": "a switch",
    "events.retention": "how long the brokers keep events",
    "events.replication_factor": "a property of a topic",
    "cluster.proxy_protocol": "a switch",
    "reuse_port": "a switch",
    "admin.writable": "a switch",
    "drain_timeout": "the length of a stop",
}
"""Keys with a number or a switch that bound nothing now, and why."""


def keys(settings: BaseModel, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in type(settings).model_fields.items():
        value, key = getattr(settings, name), f"{path}{field.alias or name}"
        if isinstance(value, BaseModel):
            yield from keys(value, f"{key}.")
        else:
            yield key, value


def settings_of(text: str = "") -> Settings:
    return parse(f"cluster: {{bootstrap_servers: [127.0.0.1:1]}}\n{text}")


def is_number(settings: Settings, key: str, value: object) -> bool:
    return isinstance(value, int | float) or (value is None and key.startswith(("limits.", "quotas.")))


def rows(settings: Settings, scene: Scene) -> dict[str, LimitRow]:
    watch = LimitWatch(settings, scene.shared)
    return {row.name: row for row in watch.rows(Moment(scene.time_ms, 10_000_000))}


def test_every_limit_in_the_settings_has_a_row() -> None:
    settings = settings_of()
    found = rows(settings, scene := Scene())
    scene.loop.close()
    numbers = {key for key, value in keys(settings) if is_number(settings, key, value)}
    assert numbers - set(found) == set(NO_LIMITS), "a limit has a row, or a reason above"
    assert {f"limits.{field.alias or name}" for name, field in LimitsSettings.model_fields.items()} <= set(
        found
    )
    assert set(found) == set(BEYOND)


def test_a_row_says_now_most_limit_and_last_hit() -> None:
    scene = Scene()
    watch = LimitWatch(settings_of("limits: {buffered_total: 1GiB}"), scene.shared)
    quotas = scene.shared.connection_quotas
    keys_of_alice = [object() for _ in range(3)]
    for key in keys_of_alice:
        quotas.opened(key, lambda _key: None, scene.time_ms)
        quotas.logged_in(key, "alice", scene.time_ms)
    quotas.sweep(scene.time_ms)
    watch.sample(scene.time_ms)
    for key in keys_of_alice[1:]:
        quotas.closed(key)
    scene.counters.connections_limited["user"] += 1
    scene.time_ms += 7_000
    quotas.sweep(scene.time_ms)
    watch.sample(scene.time_ms)
    scene.time_ms += 5_000
    found = {row.name: row for row in watch.rows(Moment(scene.time_ms, 10_000_000))}
    scene.loop.close()
    row = found["limits.connections_per_user"]
    assert (row.now, row.most, row.hits, row.last_hit_wall_ms) == (1, 3, 1, 10_000_000 - 5_000)
    assert row.whose == "alice"
    assert found["limits.idle"].last_hit_wall_ms is None
    assert found["limits.buffered_total"].limit == 1 << 30
