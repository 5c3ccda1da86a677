"""The quotas as a gateway configuration file, with reasons for each change, and its diff.

It contains all recorded settings; only users with a new rate differ. Unrecorded settings (NOT_TOLD) are
omitted. Returns text and writes no files.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import yaml

from pidgate.pipeline.in_force import InForce
from pidgate.quota.entities import OTHER_USERS, is_unidentified, mechanism_of
from pidgate.units import show_duration

COMMENT_WIDTH = 100
NOT_TOLD: Final = "byte rates, grace, help_url, runtime_changes, or the cluster connection"
"""Settings that the operator must keep when using the file."""


@dataclass(frozen=True, slots=True)
class NewRate:
    """A user's new rate. `mode`: None leaves the user's mode unchanged."""

    user: str
    rate: float
    mode: str | None = None
    reasons: Sequence[str] = field(default_factory=tuple)


def mode_of(in_force: str, current_rate: float | None, *, enforce: bool) -> str | None:
    """Return the mode for a new rate. Enforcement starts only if an operator requests it, now or earlier.

    A user without a limit is not refused yet in any mode, but would be with one.
    """
    if enforce:
        return "enforce"
    return "observe" if current_rate is None or in_force == "observe" else None


def quotas_yaml(
    config: InForce | None,
    changes: Iterable[NewRate],
    *,
    head: Sequence[str] = (),
    cluster: str = "",
    bootstrap_servers: Sequence[str] = (),
    default_rate: float | None = None,
) -> str:
    """Return the whole file. `head`: comments at its top; without servers only the section `quotas`.

    `default_rate`: for users that are not named, where no default is in force and none would be enforced by it.
    """
    lines = [*_comment(head, ""), *_cluster(cluster, bootstrap_servers)]
    after = _quotas(config, {one.user: one for one in changes}, default_rate)
    return "\n".join([*lines, *after]) + "\n"


def changes_diff(
    config: InForce | None, changes: Iterable[NewRate], default_rate: float | None = None
) -> str:
    """Return the unified diff from the quotas in force to the recommended ones; empty without changes."""
    before = _quotas(config, {}, None)
    after = _quotas(config, {one.user: one for one in changes}, default_rate)
    return "".join(
        f"{line}\n"
        for line in difflib.unified_diff(before, after, "in_force", "recommended", n=2, lineterm="")
    )


def _cluster(name: str, servers: Sequence[str]) -> Iterator[str]:
    if servers:
        yield "cluster:"
        if name:
            yield f"  name: {_scalar(name)}"
        yield f"  bootstrap_servers: [{', '.join(_scalar(server) for server in servers)}]"


def _quotas(config: InForce | None, changes: Mapping[str, NewRate], default_rate: float | None) -> list[str]:
    lines = ["quotas:"]
    new_default = None if default_rate is None else round(default_rate * 1000)
    if config is None and new_default is not None:
        lines += ["  default:", f"    producer_ids_rate: {_rate(new_default / 1000)}"]
    if config is not None:
        lines += [f"  mode: {config['mode']}", *_shape(config)]
        if config["cluster_rate_milli"] is not None:
            lines.append(f"  cluster_producer_ids_rate: {_rate(config['cluster_rate_milli'] / 1000)}")
        in_force = config["default_rate_milli"]
        if in_force is None and config["mode"] != "enforce":
            in_force = new_default
        if of_default := _rates(in_force, config, "default_"):
            lines += ["  default:", *(f"    {key}: {rate}" for key, rate in of_default.items())]
    named: dict[str, Any] = {one["user"]: one for one in config["quotas"]} if config is not None else {}
    users = sorted({*named, *changes} - {OTHER_USERS})
    for are_unidentified, of_section in groupby(users, is_unidentified):
        lines.append("  unidentified:" if are_unidentified else "  users:")
        for user in of_section:
            lines += _user(user, named.get(user, {}), changes.get(user))
    return lines


def _shape(config: InForce) -> Iterator[str]:
    yield "  producer_ids:"
    yield f"    window: {show_duration(config['window_ms'])}"
    yield f"    burst: {config['burst']:g}"
    yield f"    remember: {show_duration(config['remember_ms'])}"
    yield f"    transactional: {config['transactional']}"
    yield f"    max_throttle: {show_duration(config['max_throttle_ms'])}"
    yield f"    max_live_ids: {config['max_live_ids']}"
    if config.get("refuse_init_producer_id"):
        yield "    refuse_init_producer_id: true"


def _user(user: str, now: Mapping[str, Any], change: NewRate | None) -> Iterator[str]:
    rate_milli, mode = now.get("rate_milli"), now.get("mode")
    if change is not None:
        yield from _comment(change.reasons, "    ")
        rate_milli, mode = change.rate * 1000, change.mode or mode
    keys = {
        "mode": mode,
        **_rates(rate_milli, now),
        "owner": _scalar(now["owner"]) if now.get("owner") else None,
        "exempt": "[producer_ids]" if now.get("exempt") else None,
    }
    found = [f"      {key}: {value}" for key, value in keys.items() if value is not None]
    name = _scalar(mechanism_of(user) if is_unidentified(user) else user)
    yield f"    {name}:" if found else f"    {name}: {{}}"
    yield from found


def _rates(rate_milli: float | None, now: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the rates by key. Only that of producer ids gets a recommendation."""
    others = ("transactional_ids_rate", "producer_states_rate")
    rates = {"producer_ids_rate": rate_milli, **{rate: now.get(f"{prefix}{rate}_milli") for rate in others}}
    return {key: _rate(milli / 1000) for key, milli in rates.items() if milli is not None}


def _rate(rate: float) -> str:
    return f"{rate:.3f}".rstrip("0").rstrip(".")


def _scalar(text: str) -> str:
    """Return a YAML scalar on one line, quoted if it would be parsed differently."""
    style = None if text.isprintable() else '"'
    written: str = yaml.safe_dump(text, default_style=style, allow_unicode=style is None, width=2**20)
    return written.removesuffix("\n").removesuffix("\n...")


def _comment(sentences: Iterable[str], indent: str) -> Iterator[str]:
    """Wrap a comment. Unprintable characters (a principal may be any text) must not end it."""
    for sentence in sentences:
        clean = "".join(letter if letter.isprintable() else " " for letter in sentence)
        for line in textwrap.wrap(clean, COMMENT_WIDTH, initial_indent="", subsequent_indent="  "):
            yield f"{indent}# {line}"
