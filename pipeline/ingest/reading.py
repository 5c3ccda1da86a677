"""Records of the topic -> events, each checked as the gateways' own reader (events/reading.py) checks it.

Two readers, one verdict. Spark's JSON functions read what looks exactly as a gateway of this version (or a newer
one) writes it; every record about which they leave a doubt goes to the gateways' reader itself (doubtful.py),
which is slower, knows all versions, and says why it refuses. So Spark's reading may doubt too much, but must never
take what the other would refuse, or take it differently; a test compares the two over made-up damage. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import reduce
from operator import and_
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION
from pidgate.pipeline.ingest.columns import Reason
from pidgate.pipeline.schemas import event_schema

ORIGIN = ("value", "kafka_partition", "kafka_offset", "append_time_ms")
IDENTITY = {"gateway_id": "string", "incarnation": "string", "seq": "bigint", "wall_time_ms": "bigint"}
_BROKEN = "_broken"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BROKEN,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_BEGINNING = r'^\{"schema_version":[0-9]+,"type":"([a-z_]+)",'
# Half a surrogate pair cannot be printed, sent or hashed; Spark would replace it. And a key that is written with
# escapes would hide from the other patterns, which no text can meet: inside one, quotes have a backslash before them.
_ESCAPES = r"\\u[dD][89a-fA-F]|\\[^" + r'"]*"\s*:'


def of_type(records: DataFrame) -> DataFrame:
    """Add `type`, as far as the first bytes hold it."""
    return records.withColumn("type", f.regexp_extract(f.col("value").cast("string"), _BEGINNING, 1))


def quickly_read(typed: DataFrame, words: Sequence[str]) -> DataFrame:
    """Add a column for each of these types, named for it, with the event, and `sure`: no doubt is left.

    Name only types that are there: what nobody needs is compiled all the same.
    """
    text = f.col("value").cast("string")
    parsed = typed.select(
        *typed.columns,
        *(
            f.when(f.col("type") == word, f.from_json(text, _wanted(word), _OPTIONS)).alias(word)
            for word in words
        ),
    )
    sure = f.when(f.lit(False), f.lit(False))
    for word in words:
        sure = sure.when(f.col("type") == word, _is_sure(word, text))
    return parsed.withColumn("sure", f.coalesce(sure, f.lit(False)))


def certain(read: DataFrame, words: Sequence[str]) -> DataFrame:
    """Return the events that are sure: origin, identity, no `reason`, and a column for each type."""
    null = f.lit(None).cast("string")
    identity = (
        f.coalesce(f.lit(None).cast(kind), *(f.col(f"{word}.{name}") for word in words)).alias(name)
        for name, kind in IDENTITY.items()
    )
    return read.where("sure").select(
        *ORIGIN, "type", *identity, *(null.alias(name) for name in ("reason", "detail")), *words
    )


def looked_into(answers: DataFrame, words: Sequence[str]) -> DataFrame:
    """Return the answers of the gateways' reader (doubtful.ANSWERS) in the same columns."""
    events = (
        f.when(
            (f.col("type") == word) & f.col("reason").isNull(), f.from_json("text", _wanted(word), _OPTIONS)
        )
        .withField("schema_version", f.col("schema_version"))
        .alias(word)
        for word in words
    )
    return answers.select(*ORIGIN, "type", *IDENTITY, "reason", "detail", *events)


def judged_by_time(arrivals: DataFrame, late_after_ms: int, ahead_ms: int) -> DataFrame:
    """Give a reason to events that came too late, or from the future, for the folders of their hour."""
    # Clocks may say anything, up to the ends of 64 bits.
    age_ms = f.try_subtract("append_time_ms", "wall_time_ms")
    late = (age_ms > late_after_ms) | (age_ms.isNull() & (f.col("wall_time_ms") < 0))
    ahead = (age_ms < -ahead_ms) | (age_ms.isNull() & (f.col("wall_time_ms") >= 0))
    word = f.when(late, Reason.LATE.value).when(ahead, Reason.FROM_THE_FUTURE.value)
    sentence = f.concat(
        f.lit("appended "), f.coalesce(age_ms.cast("string"), f.lit("ages")), f.lit(" ms after it was made")
    )
    good = f.col("reason").isNull()
    return arrivals.withColumns(
        {
            "detail": f.when(good & word.isNotNull(), sentence).otherwise(f.col("detail")),
            "reason": f.when(good, word).otherwise(f.col("reason")),
        }
    )


def _wanted(word: str) -> StructType:
    more = [StructField("type", StringType()), StructField(_BROKEN, StringType())]
    return StructType([*event_schema(word).fields, *more])


def _is_sure(word: str, text: Column) -> Column:
    event = f.col(word)
    newer = event.schema_version > SCHEMA_VERSION
    made = EVENT_TYPES[word]
    checks = (
        event[_BROKEN].isNull(),
        event.type == word,
        # Older versions are brought up by the reader that knows how.
        event.schema_version >= SCHEMA_VERSION,
        # Spark stops at the end of the first value, and replaces what is no text.
        f.json_array_length(f.concat(f.lit("["), text, f.lit("]"))) == 1,
        f.is_valid_utf8(text),
        ~(f.contains(text, f.lit("\\")) & f.rlike(text, f.lit(_ESCAPES))),
        ~f.rlike(text, f.lit(_not_text(made))),
        *(f.contains(text, f.lit(f'"{name}":')) for name in _told_even_if_null(made)),
        *_fields_are_sure(event, made, newer),
    )
    return reduce(and_, checks)


def _fields_are_sure(record: Column, made: Any, newer: Column) -> Iterator[Column]:
    hints = get_type_hints(made)
    for field in fields(made):
        yield _value_is_sure(record[field.name], hints[field.name], newer)


def _value_is_sure(value: Column, hint: Any, newer: Column) -> Column:
    """A null here means: null, missing, or of another type."""
    inner = get_args(hint)
    if NoneType in inner:
        known = next(one for one in inner if one is not NoneType)
        return value.isNull() | _value_is_sure(value, known, newer)
    there = value.isNotNull()
    if get_origin(hint) is Literal:
        return there & (value.isin(*inner) | newer)
    if hint is float:
        return there & (f.abs(value) < 1e300)
    if get_origin(hint) is list:
        return there & f.forall(value, lambda item: _value_is_sure(item, inner[0], newer))
    if is_dataclass(hint):
        return reduce(and_, _fields_are_sure(value, hint, newer), there)
    return there


def _not_text(made: Any) -> str:
    """The pattern of a field of text that holds something else, which Spark would take as text."""
    return rf'"(?:{"|".join(sorted(_texts(made)))})"\s*:\s*(?!null)[^"\s]'


def _texts(hint: Any) -> set[str]:
    """Names of all fields of text, with those of records inside."""
    if not is_dataclass(hint):
        return set().union(*(_texts(inner) for inner in get_args(hint)), set())
    found: set[str] = set()
    for name, inner in get_type_hints(hint).items():
        options = {inner, *get_args(inner)}
        if str in options or any(type(one) is str or get_origin(one) is Literal for one in options):
            found.add(re.escape(name))
        found |= _texts(inner)
    return found


def _told_even_if_null(made: Any) -> list[str]:
    """Fields that may be null but not missing, which is all one to Spark."""
    hints = get_type_hints(made)
    return [
        field.name
        for field in fields(made)
        if field.default is MISSING and NoneType in get_args(hints[field.name])
    ]
