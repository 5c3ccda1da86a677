"""docs/events.md: what is written to the events topic, from the definitions. Pure.

`python -m pidgate.events.document` prints it.
"""

# ruff: noqa: E501  (rows of Markdown tables cannot be broken, and its paragraphs are not, as in the other pages)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import getdoc
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event
from pidgate.events.reading import OLDEST_READ
from pidgate.events.schema import text_of

_BEFORE = f"""# Events

<!-- Generated from events/definitions.py by `make events-docs`; edit there or in events/document.py. -->

Everything that gateways decide and notice is an event on one Kafka topic (`events.topic`, default `__pidgate_events`): the audit log, the state that the gateways of a cluster share, and the input of `pidgate who` and of pipelines.

One record is one event: the value is a JSON object in ASCII, described below and in [events.schema.json](events.schema.json) (JSON Schema 2020-12); the key is the user, or the gateway's id where there is no user, so that all about one user lies in one partition.

## Reading them

**Version.** These are events of version {SCHEMA_VERSION}. Each value begins `{{"schema_version":{SCHEMA_VERSION},"type":"<type>",`, so that a reader can skip types by their first bytes. A new version adds fields or types and renames nothing: ignore fields and types that you do not know. Within a version a field may be added that may be missing, since it has a default. Gateways read {{versions}}, and newer ones as far as they know them, so that a cluster's gateways can be upgraded one after the other.

**Delivery.** At least once: a record that was sent again after a lost answer is there twice, with the same (`incarnation`, `seq`); take the first. Nothing in the way of traffic waits for the topic: when it is slow or gone, events wait in a bounded buffer, and beyond that they are dropped and counted.

**Loss.** `seq` counts the events of an incarnation from 1 without gaps when they are made, over all types and users. A number that is missing in all partitions was lost: dropped, or still in the buffer when a gateway was killed (the last 200 ms or so).

**Order.** Within an incarnation `seq` is the order in which things happened. Between gateways compare the records' append times (the topic is created with `message.timestamp.type=LogAppendTime`): they come from the brokers' clocks. `wall_time_ms` comes from the gateway's.

**Replay.** With `events.refusals: all` (the default) decisions can be replayed event for event. With `sampled`, at most 10 refusals a second of one user are written, the next one carries how many were left out (`suppressed_count`), and a replay gives the same set of admitted ids.

**Units.** Names ending in `_ms` are milliseconds; with `wall` in their name or where the text says so, since 1970 (UTC). Rates ending in `_milli` are thousandths of a producer id per window. Producer ids are 64-bit: readers that keep numbers as doubles lose digits above 2^53. `null` means unknown or not applicable, empty text the same for names.
"""

_AFTER = """
## Volume

A decision is about 900 bytes of JSON before compression.

| type | how many |
| --- | --- |
| `decision` | one per admitted id (bounded by the quotas), one per id in use and slice (a quarter of `remember`: every six hours), one per refusal (`refusals: sampled` bounds them) |
| `refusal_outcome` | one per refused id |
| `id_usage` | one per id in use and quarter of an hour (or slice, if that is shorter), and one when its connections close |
| `init_producer_id`, `connection` | one (two) per connection; beyond 10 a second of one user, client id and address they are summed into one with a `count` |
| `produce_error` | one per id, code and slice |
| `config`, `lifecycle`, `topology` | at start and on change; `alive` twice a minute and process |

## Personal data

`user`, `client_id` and `address` are personal data in many places. They are kept as long as the topic keeps them: `events.retention` (7 days) sets `retention.ms` of a topic that the gateway creates.

`events.redact: [user, client_id, address]` writes the named fields as a short hash (`h:` and 16 hex digits, BLAKE2b of the name). With `user`, this includes the record key and the users in `config` events, whose `owner` and `note` are then left out.

- The hash has no key, and the same name always gives the same hash. So one user's events stay together, can be counted, and lie in one partition; and whoever has a list of candidate names can find them by hashing. It is a pseudonym in the sense of the GDPR, not anonymity.
- The shared quota works on. A gateway hashes the users that it knows (those with quotas of their own, and those that have connected) and so recognises them in the events of others. What is restored or heard about anybody else is kept under the hash, and handed to the user at its first connection.
- All gateways of a cluster must redact the same fields: a user that is hashed by one gateway and named by another is two users. After switching `user` on or off, producers of before look new once; grace or observe mode covers it.
- Transactional ids are written as a hash only.
- `text` of lifecycle events never holds the name of a user.

## Who may do what with the topic

A client that may write events could charge other users' quotas, or admit ids for free. The gateways refuse their own topic to all clients that come through them; ACLs keep out those that come directly.

| who | operations on the topic | why |
| --- | --- | --- |
| the gateways' own principal (`own_client`) | Read, Write, Describe, Create | to share and restore state, to publish, to find the partitions, to create the topic. Create is not needed if it exists. No consumer group, no transactional id and no IdempotentWrite are used |
| | DescribeConfigs | optional: without it, unsafe settings of an existing topic (compaction, CreateTime, retention below `remember`) are not noticed |
| analysts, pipelines, `pidgate who` | Read | it includes Describe |
| everybody else | none | |

```
kafka-acls.sh --bootstrap-server ... --add --allow-principal User:pidgate --topic __pidgate_events --operation Read --operation Write --operation Describe --operation Create --operation DescribeConfigs
kafka-acls.sh --bootstrap-server ... --add --allow-principal User:analyst --topic __pidgate_events --operation Read
```

Without an authorizer every client that reaches the brokers directly can read and write the topic.
"""


def document() -> str:
    """The whole page."""
    versions = f"version {SCHEMA_VERSION}"
    if OLDEST_READ < SCHEMA_VERSION:
        versions = f"versions {OLDEST_READ} to {SCHEMA_VERSION}"
    records: dict[str, type] = {}
    parts = [_BEFORE.replace("{versions}", versions), "\n## Every event\n", *_envelope()]
    for kind in EVENT_TYPES.values():
        parts += [f"\n## `{kind.type}`\n", f"\n{_words(kind)}\n", *_table(kind, records)]
    for name, made in records.items():
        parts += [f"\n### {name}\n", f"\n{_words(made)}\n", *_table(made, records)]
    return "".join([*parts, _AFTER])


def _words(made: type) -> str:
    return " ".join((getdoc(made) or "").split())


def _envelope() -> Iterator[str]:
    yield f"\n{_words(Event)}\n"
    yield from _table(Event, {}, envelope=True)


def _table(made: Any, records: dict[str, type], *, envelope: bool = False) -> Iterator[str]:
    yield "\n| field | type | meaning |\n| --- | --- | --- |\n"
    if envelope:
        yield f"| `schema_version` | integer | {SCHEMA_VERSION} |\n"
        yield "| `type` | text | One of the words that head the sections below |\n"
    hints = get_type_hints(made, include_extras=True)
    shared = {field.name for field in fields(Event)} if issubclass(made, Event) and not envelope else set()
    for field in fields(made):
        if field.name in shared:
            continue
        annotated = hints[field.name]
        meaning = text_of(annotated)
        if field.default is not MISSING and field.default not in ("", None, False):
            meaning += f" (default {field.default})"
        yield f"| `{field.name}` | {_type(get_args(annotated)[0], records)} | {meaning} |\n"


def _type(hint: Any, records: dict[str, type]) -> str:
    names = {int: "integer", str: "text", bool: "boolean", float: "number", NoneType: "null"}
    if hint in names:
        return names[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{word}`" for word in inner)
    if get_origin(hint) is list:
        return f"list of {_type(inner[0], records)}"
    if is_dataclass(hint):
        name = str(hint.__name__)  # type: ignore[union-attr]
        records[name] = hint  # type: ignore[assignment]
        return f"[{name}](#{name.lower()})"
    return " or ".join(_type(option, records) for option in inner)


if __name__ == "__main__":
    print(document(), end="")
