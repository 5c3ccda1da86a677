"""Precision, recall and confusion of the findings, where users have labels."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.findings.rules import PATTERNS

LABELS = "user string, pattern string"
"""The truth: several rows for a user who shows several patterns."""
NOTHING = "nothing"
"""Label in the confusion of a pattern that is not there, or was not found."""


def accuracy(findings: DataFrame, labels: DataFrame) -> DataFrame:
    """The result table detector_accuracy: one row per pattern.

    users: that have the label; found: that have the finding. Intervals are Wilson's, 95 %; null where nothing was
    labelled (recall) or found (precision). Only users that have labels are judged.
    """
    both = _compared(findings, labels)
    patterns = labels.sparkSession.createDataFrame(
        [(pattern.value,) for pattern in PATTERNS], "pattern string"
    )
    counts = both.groupBy("pattern").agg(
        f.count_if("labelled").alias("users"),
        f.count_if("found").alias("found"),
        f.count_if(f.col("labelled") & f.col("found")).alias("true_positives"),
    )
    filled = patterns.join(counts, "pattern", "left").fillna(0)
    return filled.select(
        "*", *_shares("precision", "true_positives", "found"), *_shares("recall", "true_positives", "users")
    ).orderBy("pattern")


def confusion(findings: DataFrame, labels: DataFrame) -> DataFrame:
    """The result table detector_confusion: users by actual and predicted pattern.

    A pattern that was found rightly counts on the diagonal. Of a user with mistakes, each label that was missed
    meets each pattern that was wrongly found; `nothing` where there is none.
    """
    both = _compared(findings, labels)
    right = both.where("labelled and found").select(
        "user", f.col("pattern").alias("actual"), f.col("pattern").alias("predicted")
    )
    missed = both.where("labelled and not found").select("user", f.col("pattern").alias("actual"))
    wrong = both.where("found and not labelled").select("user", f.col("pattern").alias("predicted"))
    mistaken = missed.join(wrong, "user", "full").fillna(NOTHING, ["actual", "predicted"])
    pairs = right.unionByName(mistaken.select("user", "actual", "predicted"))
    return (
        pairs.groupBy("actual", "predicted")
        .agg(f.countDistinct("user").alias("users"))
        .orderBy("actual", "predicted")
    )


def _compared(findings: DataFrame, labels: DataFrame) -> DataFrame:
    """One row per user and pattern that is labelled or found."""
    truth = labels.select("user", "pattern").distinct().withColumn("labelled", f.lit(True))
    known = labels.select("user").distinct()
    named = findings.select("user", "pattern").distinct().join(known, "user").withColumn("found", f.lit(True))
    return truth.join(named, ["user", "pattern"], "full").fillna(False, ["labelled", "found"])


def _shares(name: str, part: str, whole: str) -> list[Column]:
    low, high = wilson(f.col(part), f.col(whole))
    return [f.try_divide(part, whole).alias(name), low.alias(f"{name}_low"), high.alias(f"{name}_high")]


def wilson(part: Column, whole: Column) -> tuple[Column, Column]:
    """Return the bounds of the share that `part` of `whole` stands for (Wilson 1927); null when the whole is 0.

    Unlike the textbook's normal interval it stays within 0 and 1, and does not shrink to nothing at either.
    """
    z = 1.959963984540054  # of the normal distribution: 95 % lie within so many standard deviations
    total = f.nullif(whole, f.lit(0))
    share = part / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = f.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) * z / (1 + z * z / total)
    return f.greatest(centre - half, f.lit(0.0)), f.least(centre + half, f.lit(1.0))
