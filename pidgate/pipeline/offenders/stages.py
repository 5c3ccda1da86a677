"""The job from events to findings, stage after stage. What several stages read is computed once and kept."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pidgate.pipeline.offenders.app_features import app_features
from pidgate.pipeline.offenders.closings import cut_connections, until_closed
from pidgate.pipeline.offenders.findings import findings, harmful_places, judged_apps, judged_sources
from pidgate.pipeline.offenders.places import places
from pidgate.pipeline.offenders.producers import producers, span_of
from pidgate.pipeline.offenders.source_features import source_features
from pidgate.pipeline.runs import Keep


@dataclass(frozen=True, slots=True)
class Events:
    """The tables of events that are looked at."""

    decisions: DataFrame
    usage: DataFrame
    errors: DataFrame
    connections: DataFrame


@dataclass(frozen=True, slots=True)
class Offenders:
    """The result tables `offenders` and `offenders_places`, to be read while what was kept is there."""

    findings: DataFrame
    places: DataFrame


def offenders(events: Events, keep: Keep) -> Offenders:
    """Find who burns ids. Only one row is ever collected: when the events begin and end."""
    met = keep("producers", producers(events.decisions, events.usage, events.errors))
    there = keep("places", places(met, events.decisions, events.usage))
    known = met.join(there.select("user", "place", "source"), ["user", "place"])
    features = source_features(known, cut_connections(events.connections, there))
    sources = keep("sources", judged_sources(features, there))
    calm = keep("calm", until_closed(_calm(known, sources, there), events.connections))
    apps = keep("apps", judged_apps(app_features(calm, span_of(met))))
    return Offenders(findings(sources, apps), harmful_places(sources, there))


def _calm(known: DataFrame, sources: DataFrame, there: DataFrame) -> DataFrame:
    """The producers whose source has no story, with the names of their places."""
    busy = sources.where("pattern is not null").select("source")
    named = there.select("user", "place", "app", "client_id", "address")
    return known.join(busy, "source", "left_anti").join(named, ["user", "place"])
