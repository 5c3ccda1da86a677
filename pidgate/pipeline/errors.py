"""Errors from outside, each with cause and remedy in its message; the command ends with exit code 2."""

from __future__ import annotations

import re


class PipelineError(Exception):
    """Something outside is not as it must be. The message names cause and remedy."""


class JavaUnfit(PipelineError):
    """No Java, or one on which Spark does not start."""


class SparkUnfit(PipelineError):
    """A Spark of another version than these jobs are written for."""


class TopicMissing(PipelineError):
    """No such topic, or nobody answers at the bootstrap servers."""


class TopicSilent(PipelineError):
    """Brokers gave nothing of the topic for long, and no reason."""


class TopicLostData(PipelineError):
    """The topic no longer holds what comes next."""


TO_GO_ON = (
    "The batch was not taken. To go on with what the topic holds and have the loss recorded in losses/: "
    "--on-data-loss go-on. That it does not happen again: run ingest more often than the topic's retention."
)


class HistoryEmpty(PipelineError):
    """A job found no events to work on."""


class TableUnreadable(PipelineError):
    """A folder or file is not what a job wrote."""


class OutOfSpace(PipelineError):
    """The disk is full."""


class BadOption(PipelineError):
    """An option, or a file named by one, cannot be used."""


_RAISED = re.compile(rf"^{re.escape(__name__)}\.(\w+): (.+)$", re.MULTILINE)


def raised_in_task(error: BaseException) -> PipelineError | None:
    """Return the error of these that a task of Spark ended with; None for another.

    Spark gives its driver what Python has printed in the task, not the exception.
    """
    found = _RAISED.search(str(error))
    kinds = {kind.__name__: kind for kind in PipelineError.__subclasses__()}
    return kinds[found[1]](found[2]) if found is not None and found[1] in kinds else None
