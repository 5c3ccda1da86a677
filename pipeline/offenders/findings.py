"""From features to findings: one row per user and pattern, with evidence, a sentence, and the share it explains."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.events.patterns import HARMFUL, PATTERN_WORDS, Pattern
from pidgate.pipeline.offenders import words
from pidgate.pipeline.offenders.places import ANYTHING
from pidgate.pipeline.offenders.rules import APPS, SOURCES, Rule, pattern_of

MOSTLY = 0.5
"""A user of whose new ids less is explained is (also) unknown."""
FEWEST_UNKNOWN = 8
"""Unexplained new ids that are worth a word beside what is explained."""

_WHO = f"""{words.name("user")} || "'s " || case
    when client = '{ANYTHING}' then 'clients of several names'
    when client = '' then 'clients without a name'
    when contains(client, '{ANYTHING}') then 'clients ' || {words.name("client")}
    else 'client ' || {words.name("client")} end
    || coalesce(' at ' || {words.name("address")}, ' at several addresses')"""


def _if_several(several: str, one: str) -> str:
    return f"if(contains(client, '{ANYTHING}') or client = '', '{several}', '{one}')"


WORDS: dict[str, str] = {
    **{name: words.name(name) for name in ("user", "crowd_address", "crowd_client_id")},
    **{
        name: words.count(name)
        for name in (
            *("new_ids", "bursts", "alive_least", "alive_most", "late_ids"),
            *("met_at_address", "alive_at_address", "met_at_client_id", "alive_at_client_id"),
        )
    },
    "who": _WHO,
    "s": _if_several("", "s"),
    "is_": _if_several("are", "is"),
    "was": _if_several("were", "was"),
    "in_active": f"' in ' || {words.duration('active_ms')}",
    "interval": words.duration("interval_ms"),
    "lived": f"', each in use for about ' || {words.duration('life_ms')}",
    "backing_off": "if(grown >= 3, ', with growing pauses', '')",
    "per_start": "''",
    "per_burst": words.count("greatest(ids_per_burst, 1)"),
    "kept": f"{words.count('names')} || ' different transactional ids'",
    "sent": f"{words.per_cent('one_request')} || ' of them sent one request, ' || {words.per_cent('short_lived')}"
    " || ' lived under a second'",
    "failed": words.per_cent("failed"),
    "error_code": "cast(error_code as string)",
    "replaced": f"{words.count('replacements')} || ' times all instances (up to ' || {words.count('instances')}"
    " || ') were replaced, one after the other'",
    "long_lived": f"{words.count('long_ids')} || ' long-lived producers'",
    "beside": f"', ' || {words.count('late_ids')} || ' new ids beside them'",
}
"""Spark SQL for the {places} in the sentences of events/patterns.py."""


def judged_sources(features: DataFrame, places: DataFrame) -> DataFrame:
    """source_features with the names of the source and its `pattern`; null: calm."""
    named = places.groupBy("source").agg(f.min("client").alias("client"), f.min("at").alias("address"))
    return features.join(named, "source").withColumn("pattern", pattern_of(SOURCES))


def judged_apps(features: DataFrame) -> DataFrame:
    """app_features with the `pattern`; null: it fits nothing."""
    client = f.coalesce("only_client_id", "app")
    return features.withColumns({"client": client, "pattern": pattern_of(APPS)})


def findings(sources: DataFrame, apps: DataFrame) -> DataFrame:
    """The result table `offenders`, from both that were judged. Every user of either has at least one row."""
    known = _found(sources, SOURCES).unionByName(_found(apps, APPS))
    explained = known.groupBy("user").agg(f.sum("new_ids").alias("explained"), f.count("*").alias("found"))
    users = _new_ids(sources, apps).join(explained, "user", "left").fillna(0)
    shared = known.join(users.select("user", "all_ids"), "user").unionByName(_unknown(users))
    harmful = f.col("pattern").isin(*[pattern.value for pattern in HARMFUL])
    share = f.coalesce(f.try_divide("new_ids", "all_ids"), f.lit(0.0))
    named = ("new_ids", share.alias("share"), "client_id", "address", "evidence", "sentence")
    return shared.select("user", "pattern", harmful.alias("harmful"), *named)


def _new_ids(sources: DataFrame, apps: DataFrame) -> DataFrame:
    """Sum each user's new ids: of sources that have a pattern, and of the apps, which are calm."""
    of_sources = sources.where("pattern is not null").select("user", "new_ids")
    both = of_sources.unionByName(apps.select("user", "new_ids"))
    return both.groupBy("user").agg(f.sum("new_ids").alias("all_ids"))


def _found(judged: DataFrame, rules: tuple[Rule, ...]) -> DataFrame:
    """Join a user's sources (or apps) of one pattern to one finding, with the words of the largest."""
    worded = f.struct(
        _of_rule(rules, {rule.pattern: _sentence(rule.pattern, WORDS) for rule in rules}).alias("sentence"),
        _of_rule(rules, {rule.pattern: _numbers(rule.evidence) for rule in rules}).alias("evidence"),
        "client",
        "address",
    )
    joined = (
        judged.where("pattern is not null")
        .select("user", "pattern", "new_ids", worded.alias("worded"))
        .groupBy("user", "pattern")
        .agg(
            f.sum("new_ids").alias("new_ids"),
            f.count("*").alias("sources"),
            f.max_by("worded", f.struct("new_ids", "worded.client", "worded.address")).alias("top"),
        )
    )
    and_more = "if(sources > 1, ' (and ' || (sources - 1) || ' more like it)', '')"
    evidence = "map_concat(map_filter(top.evidence, (name, value) -> value is not null), map('sources', sources || ''))"
    return joined.select(
        "user",
        "pattern",
        "new_ids",
        f.col("top.client").alias("client_id"),
        f.col("top.address").alias("address"),
        f.expr(evidence).alias("evidence"),
        f.expr(f"top.sentence || {and_more}").alias("sentence"),
    )


def _sentence(pattern: Pattern, filled: dict[str, str]) -> str:
    return words.sentence(PATTERN_WORDS[pattern].sentence, filled)


def _of_rule(rules: tuple[Rule, ...], texts: dict[Pattern, str]) -> Column:
    """Return the text of the rule that was found; each is SQL."""
    cases = " ".join(f"when '{rule.pattern.value}' then {texts[rule.pattern]}" for rule in rules)
    return f.expr(f"case pattern {cases} end")


def _numbers(names: tuple[str, ...]) -> str:
    """The numbers that a rule looked at, as text; what is not known is null."""
    pairs = ", ".join(f"'{name}', cast(round({name}, 3) as string)" for name in ("new_ids", *names))
    return f"map({pairs})"


def _unknown(users: DataFrame) -> DataFrame:
    rest = "all_ids - explained"
    many = f"{rest} > {MOSTLY} * all_ids and {rest} >= {FEWEST_UNKNOWN}"
    ids = f"{words.count(rest)} || ' of ' || {words.count('all_ids')} || ' new ids'"
    of_all = _sentence(Pattern.UNKNOWN, {"ids": ids})
    too_few = f"'too little is known, ' || {words.count(rest)} || ' new ids'"
    sentence = f"{words.name('user')} || ': ' || if({many}, {of_all}, {too_few})"
    return users.where(f"found = 0 or ({many})").select(
        "user",
        f.lit(Pattern.UNKNOWN.value).alias("pattern"),
        f.expr(rest).alias("new_ids"),
        f.lit(None).cast("string").alias("client_id"),
        f.lit(None).cast("string").alias("address"),
        f.expr(f"map('unexplained', cast({rest} as string))").alias("evidence"),
        f.expr(sentence).alias("sentence"),
        "all_ids",
    )
