"""Every user's history for the replay: its arrivals with their health and traffic, and its story in one row."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.arrivals import arrivals
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


def stories(tables: Tables, decisions: DataFrame, usages: DataFrame) -> DataFrame:
    """Return one row per user: when it was seen, with which client, what `offenders` found, where its states are.

    `days`: with data. `seen_weekly`: they are whole weeks apart.
    """
    day = f.unix_date(f.to_date("day"))
    both = decisions.select("user", "day").unionByName(usages.select("user", "day"))
    seen = both.groupBy("user").agg(
        f.count_distinct("day").cast("bigint").alias("days"),
        ((f.count_distinct(f.pmod(day, f.lit(7))) == 1) & (f.max(day) > f.min(day))).alias("seen_weekly"),
    )
    of_user = decisions.where("user != ''").groupBy("user")
    software = f.concat_ws(" ", f.nullif("software_name", f.lit("")), f.nullif("software_version", f.lit("")))
    met = of_user.agg(
        f.min("wall_time_ms").alias("first_ms"),
        f.max("wall_time_ms").alias("last_ms"),
        f.mode(f.nullif(software, f.lit("")), deterministic=True).alias("client"),
        # A client refused before it had an id may have been healthy.
        f.count_if(f.expr("decision = 'refuse' and producer_id < 0")).alias("unnamed_refusals"),
    )
    story = met.join(seen, "user").join(_fullest(tables, decisions), "user", "left")
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


def _sorted(column: Column | str, name: str) -> Column:
    return f.array_sort(f.collect_set(column)).alias(name)


def _fullest(tables: Tables, decisions: DataFrame) -> DataFrame:
    """Return user, top_topic and top_broker: where most of its ids wrote first, and where those states are.

    A tie goes to the first by name.
    """
    by_topic = decisions.where("decision = 'admit' and topic != ''").groupBy("user", "topic").count()
    brokers = (
        shares(tables.events("topology"))
        .groupBy("topic")
        .agg(f.max_by("broker", f.struct("share", -f.col("broker"))).alias("top_broker"))
    )
    most = Window.partitionBy("user").orderBy(f.desc("count"), "topic")
    first = by_topic.withColumn("place", f.row_number().over(most)).where("place = 1")
    found = first.join(f.broadcast(brokers), "topic", "left")
    return found.select("user", f.col("topic").alias("top_topic"), "top_broker")


def share_of_a_broker(tables: Tables) -> float:
    """Return the largest share of a cluster's states on one broker; 1 without topology, an upper bound."""
    share = shares(tables.events("topology")).where("topic = ''").agg(f.max("share")).collect()[0][0]
    return 1.0 if share is None else float(share)


def days_with_data(decisions: DataFrame) -> int:
    """Return the number of days with any event: days that were lost are no evidence of rest."""
    return int(decisions.select("day").distinct().count())


def expiry_ms(tables: Tables) -> int:
    return expiration_ms(tables.events("topology"))
