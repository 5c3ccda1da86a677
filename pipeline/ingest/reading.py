"""Records of the topic -> events, each checked as the gateways' own reader (events/reading.py) checks it.

Two readers, one verdict. msgspec reads what looks exactly as a gateway of this version writes it, every field of the
right type and none besides; every record that it refuses goes to the gateways' reader itself (doubtful.py), which knows
all versions and says why it refuses. So the first may doubt too much, but must never take what the other would refuse,
or take it differently; a test compares the two over made-up damage. Columns are made by pyarrow's reader of JSON, of
what was checked and written anew. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.json as arrow_json
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION
from pidgate.pipeline.ingest.columns import RECORDS, Reason
from pidgate.pipeline.ingest.doubtful import answer_to
from pidgate.pipeline.schemas import event_schema

IDENTITY = ("gateway_id", "incarnation", "seq", "wall_time_ms")
TOLD = ("type", *IDENTITY, "reason", "detail")
READ = StructType(
    [
        *RECORDS.fields,
        *(
            StructField(name, LongType() if name in ("seq", "wall_time_ms") else StringType())
            for name in TOLD
        ),
        *(StructField(word, event_schema(word)) for word in EVENT_TYPES),
    ]
)
"""A record; what it is, as far as that can be read, or why it is no event; and the event, in the column of its type."""


def read(records: DataFrame) -> DataFrame:
    """Read all records, each as the event it is or with a reason: READ."""
    return records.select(*RECORDS.names).mapInArrow(_read, READ)


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


@dataclass(slots=True)
class _OfType:
    """Events of one type in a batch: their rows, and each as JSON with the version that wrote it."""

    rows: list[int] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def add(self, row: int, text: bytes, version: int) -> None:
        self.rows.append(row)
        self.texts.append(text)
        self.versions.append(version)


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from read_batch(batch)


def read_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Read one batch of RECORDS: a batch of READ for each type of events in it, and one of what is no event."""
    events = {word: _OfType() for word in EVENT_TYPES}
    refused: list[int] = []
    answers: list[dict[str, Any]] = []
    for row, value in enumerate(batch.column("value").to_pylist()):
        if (certain := surely(value)) is not None:
            word, text = certain
            events[word].add(row, text, SCHEMA_VERSION)
            continue
        answer = answer_to(value)
        if answer["reason"] is None:
            events[answer["type"]].add(row, answer["text"].encode(), answer["schema_version"])
        else:
            refused.append(row)
            answers.append(answer)
    for word, found in events.items():
        if found.rows:
            yield _batch(batch, found.rows, _columns(word, found))
    if refused:
        told = {
            name: pa.array([answer[name] for answer in answers], _ARROW.field(name).type) for name in TOLD
        }
        yield _batch(batch, refused, told)


def surely(value: bytes | None) -> tuple[str, bytes] | None:
    """Return the type of the event in these bytes, and the event anew as JSON; None: that is in doubt."""
    if value is None:
        return None
    try:
        word = _HEAD.decode(value).type
        return word, _WRITER.encode(_READERS[word].decode(value))
    # UnicodeDecodeError is a ValueError, as msgspec's own errors are.
    except (ValueError, KeyError, RecursionError):
        return None


def _columns(word: str, found: _OfType) -> dict[str, pa.Array]:
    kind = _ARROW.field(word).type
    lines = b"\n".join(found.texts)
    table = arrow_json.read_json(
        pa.BufferReader(lines),
        # One block, or an event could lie in two.
        arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        arrow_json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
    )
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    columns["schema_version"] = pa.array(found.versions, pa.int64())
    event = pa.StructArray.from_arrays([columns[one.name] for one in kind], fields=list(kind))
    named = pa.array([word] * len(found.rows), pa.string())
    return {"type": named, **{name: columns[name] for name in IDENTITY}, word: event}


def _batch(records: pa.RecordBatch, rows: Sequence[int], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return these rows of the records with these columns; all others of READ are null."""
    taken = records.take(pa.array(rows, pa.int64()))
    known = {**dict(zip(RECORDS.names, taken.columns, strict=True)), **columns}
    return pa.RecordBatch.from_arrays(
        [known[one.name] if one.name in known else pa.nulls(len(rows), one.type) for one in _ARROW],
        schema=_ARROW,
    )


# What msgspec reads: a class for each type of event and each record in one, made of the events' definitions.

_SIMPLE: Mapping[object, object] = {
    int: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    float: Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)],
}


def _strict(hint: Any) -> Any:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if is_dataclass(hint):
        return _class_of(hint, {})
    inner = get_args(hint)
    if get_origin(hint) is list:
        return list[_strict(inner[0])]  # type: ignore[misc]
    if type(None) in inner:
        return _strict(inner[0]) | None
    return hint


def _class_of(made: Any, before: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return a class with the fields of a dataclass, and these before them."""
    hints = get_type_hints(made)
    told: list[tuple[str, Any] | tuple[str, Any, Any]] = list(before.items())
    for one in fields(made):
        kind = _strict(hints[one.name])
        if one.default is not MISSING:
            told.append((one.name, kind, one.default))
        elif one.default_factory is not MISSING:
            told.append((one.name, kind, msgspec.field(default_factory=one.default_factory)))
        else:
            told.append((one.name, kind))
    return msgspec.defstruct(made.__name__, told, kw_only=True, forbid_unknown_fields=True)


class _Head(msgspec.Struct):
    type: str


_HEAD = msgspec.json.Decoder(_Head)
_WRITER = msgspec.json.Encoder()
_READERS = {
    word: msgspec.json.Decoder(
        _class_of(made, {"schema_version": Literal[SCHEMA_VERSION], "type": Literal[word]})
    )
    for word, made in EVENT_TYPES.items()
}
_ARROW = to_arrow_schema(READ)
