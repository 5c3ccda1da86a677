"""Every user's history for the replay: its arrivals with their health and traffic, and its story in one row."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.arrivals import arrivals
from pidgate.pipeline.errors import HistoryEmpty
from pidgate.pipeline.expiry import expiration_ms
from pidgate.pipeline.failover.placement import shares
from pidgate.pipeline.recommend.measured import INPUT
from pidgate.pipeline.tables import Tables

LABELS_OF_IDS = "user string, producer_id bigint, healthy boolean, pattern string"
"""labels_ids/: ground truth for each generated id."""

ALL_HEALTHY, BY_FINDINGS, BY_LABELS = "assumed", "offenders", "labels"
"""Where `healthy` comes from."""


def of_users(
    tables: Tables, decisions: DataFrame, usages: DataFrame, remember_ms: int
) -> tuple[DataFrame, str]:
    """Return rows of measured.INPUT, and where `healthy` comes from.

    A row is an arrival, or an id that is older than the history. The traffic of an id belongs to its first arrival.
    """
    came, source = with_health(tables, arrivals(decisions, remember_ms).where("user != ''"))
    in_time = Window.partitionBy("producer_id", "user").orderBy("at_ms")
    came = came.withColumn("number", f.row_number().over(in_time))
    used = use_of_ids(decisions, usages).withColumn("number", f.lit(1))
    rows = came.join(used, ["producer_id", "user", "number"], "full")
    address = f.when(~f.col("healthy"), f.xxhash64("address")).alias("address")
    return rows.select(*(address if name == "address" else name for name in INPUT.names)), source


def use_of_ids(decisions: DataFrame, usages: DataFrame) -> DataFrame:
    """Return user, producer_id, first_ms, last_ms, requests, records, partitions: one row per id that was used."""
    at_ms, none = f.col("wall_time_ms"), f.lit(None).cast("bigint")
    admitted = decisions.where("decision = 'admit' and producer_id >= 0 and user != ''").select(
        "user", "producer_id", at_ms.alias("first_ms"), at_ms.alias("last_ms"),
        none.alias("requests"), none.alias("records"), none.alias("partitions"),
    )  # fmt: skip
    return (
        usages.where("user != ''")
        .select(*admitted.columns)
        .unionByName(admitted)
        .groupBy("producer_id", "user")
        .agg(
            f.min("first_ms").alias("first_ms"),
            f.max("last_ms").alias("last_ms"),
            f.sum("requests").alias("requests"),
            f.sum("records").alias("records"),
            f.max("partitions").alias("partitions"),
        )
    )


def with_health(tables: Tables, came: DataFrame) -> tuple[DataFrame, str]:
    """Add `healthy` by labels, else by the places of harmful findings; and return the source."""
    if tables.exists("labels_ids"):
        labels = tables.read("labels_ids", schema=LABELS_OF_IDS)
        truth = labels.select("user", "producer_id", "healthy").dropDuplicates(["user", "producer_id"])
        return _healthy(came.join(truth, ["user", "producer_id"], "left")), BY_LABELS
    places = tables.result("offenders_places")
    if places is None:
        return came.withColumn("healthy", f.lit(True)), ALL_HEALTHY
    harmful = places.select("user", "client_id", "address", f.lit(False).alias("healthy")).distinct()
    return _healthy(came.join(harmful, ["user", "client_id", "address"], "left")), BY_FINDINGS


def _healthy(came: DataFrame) -> DataFrame:
    return came.withColumn("healthy", f.coalesce("healthy", f.lit(True)))


def seen(decisions: DataFrame, usages: DataFrame) -> DataFrame:
    """Return counts per user, day, client software and topic: one pass over the events, for stories()."""
    software = f.concat_ws(" ", f.nullif("software_name", f.lit("")), f.nullif("software_version", f.lit("")))
    decided = (
        decisions.where("user != ''")
        .groupBy(
            "user",
            "day",
            f.nullif(software, f.lit("")).alias("client"),
            f.when(f.col("decision") == "admit", f.nullif("topic", f.lit(""))).alias("topic"),
        )
        .agg(
            f.min("wall_time_ms").alias("first_ms"),
            f.max("wall_time_ms").alias("last_ms"),
            f.count("*").alias("decisions"),
            # A client refused before it had an id may have been healthy.
            f.count_if(f.expr("decision = 'refuse' and producer_id < 0")).alias("unnamed_refusals"),
        )
    )
    used = usages.where("user != ''").select("user", "day").distinct()
    return decided.unionByName(used, allowMissingColumns=True)


def stories(tables: Tables, seen: DataFrame) -> DataFrame:
    """Return one row per user: when it was seen, with which client, what `offenders` found, where its states are.

    `days`: with data. `seen_weekly`: they are whole weeks apart. Only the topic that most decisions name is told.
    """
    day = f.unix_date(f.to_date("day"))
    story = seen.groupBy("user").agg(
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.coalesce(f.sum("unnamed_refusals"), f.lit(0)).alias("unnamed_refusals"),
        f.count_distinct("day").cast("bigint").alias("days"),
        ((f.count_distinct(f.pmod(day, f.lit(7))) == 1) & (f.max(day) > f.min(day))).alias("seen_weekly"),
    )
    brokers = (
        shares(tables.events("topology"))
        .groupBy(f.col("topic").alias("top_topic"))
        .agg(f.max_by("broker", f.struct("share", -f.col("broker"))).alias("top_broker"))
    )
    story = (
        story.join(_most(seen, "client", "client"), "user", "left")
        .join(_most(seen, "topic", "top_topic"), "user", "left")
        .join(f.broadcast(brokers), "top_topic", "left")
    )
    nothing = f.array().cast("array<string>")
    offenders = tables.result("offenders")
    if offenders is None:
        return story.withColumns({"patterns": nothing, "rogues": nothing})
    client = f.expr("'client ' || nullif(client_id, '') || coalesce(' at ' || address, '')")
    found = (
        offenders.where("harmful")
        .groupBy("user")
        .agg(_sorted("pattern", "patterns"), _sorted(client, "rogues"))
    )
    return story.join(found, "user", "left").withColumns(
        {name: f.coalesce(name, nothing) for name in ("patterns", "rogues")}
    )


def _most(seen: DataFrame, column: str, name: str) -> DataFrame:
    """Return each user's value with the most decisions; of equal ones the last by name."""
    counted = seen.where(f.col(column).isNotNull()).groupBy("user", column).agg(f.sum("decisions").alias("n"))
    return counted.groupBy("user").agg(f.max_by(column, f.struct("n", column)).alias(name))


def _sorted(column: Column | str, name: str) -> Column:
    return f.array_sort(f.collect_set(column)).alias(name)


def share_of_a_broker(tables: Tables) -> float:
    """Return the largest share of a cluster's states on one broker; 1 without topology, an upper bound."""
    share = shares(tables.events("topology")).where("topic = ''").agg(f.max("share")).collect()[0][0]
    return 1.0 if share is None else float(share)


def ends_and_days(seen: DataFrame) -> tuple[int, int, int]:
    """Return the first and the last time of seen(), and its days with data. Raises HistoryEmpty.

    Days that were lost are no evidence of rest.
    """
    first_ms, last_ms, days = seen.agg(
        f.min("first_ms"), f.max("last_ms"), f.count_distinct("day")
    ).collect()[0]
    if first_ms is None:
        raise HistoryEmpty("no decision event names a user, so there is nobody to recommend a quota for.")
    return first_ms, last_ms, days


def expiry_ms(tables: Tables) -> int:
    return expiration_ms(tables)
