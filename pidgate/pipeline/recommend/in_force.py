"""The quotas in force, from the newest config event: each user's rate and owner."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.newest import newest_row
from pidgate.quota.settings import Mode, ProducerIdSettings

InForce = dict[str, Any]
"""A config event as plain values; `quotas` is a list of such."""


def settings(config: Mapping[str, Any] | None) -> ProducerIdSettings:
    """Return the quota settings shared by all users; the gateway's defaults without a config event."""
    if config is None:
        return ProducerIdSettings()
    return ProducerIdSettings(
        window_ms=config["window_ms"],
        # Through its decimal digits, as the gateway reads its file.
        burst=Fraction(str(config["burst"])),
        remember_ms=config["remember_ms"],
        layers=config["layers"],
        false_positive_rate=config["false_positive_rate"],
        transactional=Mode(config["transactional"]),
        max_throttle_ms=config["max_throttle_ms"],
        max_live_ids=config["max_live_ids"],
        queue=config["queue"],
        sticky_entries=config["sticky_entries"],
        refuse_init=config["refuse_init_producer_id"],
    )


def users_in_force(configs: DataFrame) -> DataFrame:
    """Return named users: user, own_rate (null: the default's), mode, exempt, owner, source, set_by."""
    return (
        newest_row(configs)
        .select(f.explode("quotas").alias("quota"))
        .select(
            "quota.user",
            (f.col("quota.rate_milli") / 1000).alias("own_rate"),
            "quota.mode",
            "quota.exempt",
            "quota.owner",
            "quota.source",
            "quota.set_by",
        )
    )


def with_current(need: DataFrame, named: DataFrame, config: InForce | None) -> DataFrame:
    """Return need with the user's quota in force.

    Columns: current_rate (null: no limit, as for exempt users), mode, exempt, owner, source, set_by.
    """
    default = None if config is None else config["default_rate_milli"]
    mode = "observe" if config is None else config["mode"]
    default_rate = f.lit(None if default is None else default / 1000).cast("double")
    return (
        need.join(f.broadcast(named), "user", "left")
        .fillna({"exempt": False, "owner": "", "source": "", "set_by": ""})
        .withColumn("current_rate", f.when(~f.col("exempt"), f.coalesce("own_rate", default_rate)))
        .withColumn("mode", f.coalesce("mode", f.lit(mode)))
        .drop("own_rate")
    )
