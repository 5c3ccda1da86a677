"""External errors, each with cause and remedy in its message; the command exits with code 2."""

from __future__ import annotations

import re


class PipelineError(Exception):
    """Base class of errors outside the pipeline. The message has cause and remedy."""


class JavaUnfit(PipelineError):
    """No Java, or one that Spark does not support."""


class SparkUnfit(PipelineError):
    """An unsupported Spark version."""


class TopicMissing(PipelineError):
    """The topic does not exist, or the bootstrap servers do not respond."""


class TopicSilent(PipelineError):
    """The brokers returned no records for a long time, without an error."""


class TopicLostData(PipelineError):
    """The topic no longer holds the next offsets."""


class OtherWriter(PipelineError):
    """Another ingest committed to the same tables."""


TO_GO_ON = (
    "The batch was not ingested. To continue and record the loss in losses/: --on-data-loss go-on. "
    "To prevent it: run ingest more often than the topic's retention."
)


class HistoryEmpty(PipelineError):
    """The job found no events."""


class TableUnreadable(PipelineError):
    """A folder or file is not in a job's format."""


class BadOption(PipelineError):
    """An option, or the file it names, is invalid."""


_RAISED = re.compile(rf"^{re.escape(__name__)}\.(\w+): (.+)$", re.MULTILINE)


def raised_in_task(error: BaseException) -> PipelineError | None:
    """Return the pipeline error that a Spark task raised; None for other errors.

    Spark passes only the task's printed traceback to the driver, not the exception.
    """
    found = _RAISED.search(str(error))
    kinds = {kind.__name__: kind for kind in PipelineError.__subclasses__()}
    return kinds[found[1]](found[2]) if found is not None and found[1] in kinds else None
