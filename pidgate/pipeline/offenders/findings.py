"""From features to findings: one row per user and pattern, with evidence, a sentence, and the share it explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from pidgate.findings.families import ANYTHING
from pidgate.findings.features import AppFeatures, SourceFeatures, features_of
from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.findings.rules import APPS, FEWEST_IDS, MOSTLY, SOURCES, pattern_of
from pidgate.findings.sentences import Row, evidence, sentence, unexplained


def judged_sources(features: DataFrame, places: DataFrame) -> DataFrame:
    """source_features with the names of the source and its `pattern`; null: calm."""
    named = places.groupBy("source").agg(f.min("client").alias("client"), f.min("at").alias("address"))
    return features.join(named, "source").withColumn("pattern", _pattern(SourceFeatures, features))


def judged_apps(features: DataFrame) -> DataFrame:
    """app_features with the `pattern`; null: it fits nothing."""
    client = f.coalesce("only_client_id", "app")
    return features.withColumns({"client": client, "pattern": _pattern(AppFeatures, features)})


def _pattern(kind: type[SourceFeatures | AppFeatures], features: DataFrame) -> Column:
    """Return the pattern of each row of features. A row a source or application: few enough for Python."""
    names = [one.name for one in fields(kind) if one.name in features.columns]
    judge = f.udf(_source_pattern if kind is SourceFeatures else _app_pattern, "string", useArrow=False)
    return judge(f.struct(*names))


def _source_pattern(row: Any) -> str | None:
    pattern = pattern_of(SOURCES, features_of(SourceFeatures, row.asDict()))
    return None if pattern is None else pattern.value


def _app_pattern(row: Any) -> str | None:
    pattern = pattern_of(APPS, features_of(AppFeatures, row.asDict()))
    return None if pattern is None else pattern.value


def findings(sources: DataFrame, apps: DataFrame) -> DataFrame:
    """The result table `offenders`, from both that were judged. Every user of either has at least one row."""
    known = _found(sources).unionByName(_found(apps), allowMissingColumns=True)
    explained = known.groupBy("user").agg(
        f.sum("explained_ids").alias("explained"), f.count("*").alias("found")
    )
    users = _new_ids(sources, apps).join(explained, "user", "left").fillna(0)
    with_users = known.join(users.select("user", "all_ids"), "user")
    return with_users.unionByName(_unknown(users), allowMissingColumns=True).mapInArrow(_worded, RESULT)


def harmful_places(sources: DataFrame, there: DataFrame) -> DataFrame:
    """The result table `offenders_places`: user, client_id, address, pattern of each place (places()) whose source
    harms. A finding names the largest of its sources; whose ids are a rogue's, these say.

    A place with a story of its own that fits no pattern is harmful where others of its application at its address are:
    it may have more ids than they because they were refused.
    """
    found = there.join(sources.select("source", "pattern"), "source")
    harmful = found.where(f.col("pattern").isin([pattern.value for pattern in HARMFUL]))
    of_app = harmful.where(~f.col("alone") & (f.col("app") != ANYTHING)).groupBy("user", "app", "address")
    unclear = found.where(f.col("alone") & f.col("pattern").isNull()).drop("pattern")
    like_others = unclear.join(of_app.agg(f.min("pattern").alias("pattern")), ["user", "app", "address"])
    columns = ("user", "client_id", "address", "pattern")
    return harmful.select(*columns).unionByName(like_others.select(*columns))


def _new_ids(sources: DataFrame, apps: DataFrame) -> DataFrame:
    """Sum each user's new ids: of sources that have a pattern, and of the apps, which are calm."""
    of_sources = sources.where("pattern is not null").select("user", "new_ids")
    both = of_sources.unionByName(apps.select("user", "new_ids"))
    return both.groupBy("user").agg(f.sum("new_ids").alias("all_ids"))


def _found(judged: DataFrame) -> DataFrame:
    """Join a user's sources (or apps) of one pattern to one row, with the features of the largest."""
    features = [name for name in judged.columns if name not in ("user", "pattern")]
    largest = f.max_by(f.struct(*features), f.struct("new_ids", "client", "address")).alias("top")
    joined = (
        judged.where("pattern is not null")
        .groupBy("user", "pattern")
        .agg(f.sum("new_ids").alias("explained_ids"), f.count("*").alias("alike"), largest)
    )
    return joined.select("user", "pattern", "explained_ids", "alike", "top.*")


def _unknown(users: DataFrame) -> DataFrame:
    rest = f.col("all_ids") - f.col("explained")
    unknown = f.lit(Pattern.UNKNOWN.value).alias("pattern")
    left = users.select("user", unknown, rest.alias("explained_ids"), "all_ids", "found")
    return left.where((f.col("found") == 0) | _are_many("explained_ids")).drop("found")


def _are_many(ids: str) -> Column:
    return (f.col(ids) > MOSTLY * f.col("all_ids")) & (f.col(ids) >= FEWEST_IDS)


def _worded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist(list(map(finding, batch.to_pylist())), schema=_ARROW)


def finding(row: Row) -> dict[str, Any]:
    """Return the row of `offenders` for one that findings() has gathered."""
    pattern, ids, all_ids = Pattern(row["pattern"]), row["explained_ids"], row["all_ids"]
    if pattern is Pattern.UNKNOWN:
        text, numbers = unexplained(row["user"], ids, all_ids), {"unexplained": str(ids)}
    else:
        text = sentence(pattern, row, row["alike"])
        numbers = {name: str(value) for name, value in evidence(pattern, row).items()}
        numbers["sources"] = str(row["alike"])
    return {
        "user": row["user"],
        "pattern": pattern.value,
        "harmful": pattern in HARMFUL,
        "new_ids": ids,
        "share": ids / all_ids if all_ids else 0.0,
        "client_id": row["client"],
        "address": row["address"],
        "evidence": list(numbers.items()),
        "sentence": text,
    }


_ARROW = pa.schema(
    [
        ("user", pa.string()),
        ("pattern", pa.string()),
        ("harmful", pa.bool_()),
        ("new_ids", pa.int64()),
        ("share", pa.float64()),
        ("client_id", pa.string()),
        ("address", pa.string()),
        ("evidence", pa.map_(pa.string(), pa.string())),
        ("sentence", pa.string()),
    ]
)
RESULT = from_arrow_schema(_ARROW)
