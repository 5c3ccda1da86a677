"""Recorded arrivals, decided once more by quota's own code: the proof that a replay can be believed.

What was decided is taken away first (recorded.py); what came is fed to `quota.Admission`, process by process
(gateway.py), in the order of its numbers, with what each process had heard of the others by then (topic.py). engine.py
does this for the events of one cluster, without Spark; frame.py for many clusters, with it.
"""

from pidgate.pipeline.replay.engine import Recomputed, replayed
from pidgate.pipeline.replay.recorded import DECISION_COLUMNS, without_decision

__all__ = ["DECISION_COLUMNS", "Recomputed", "replayed", "without_decision"]
