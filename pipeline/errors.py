"""Errors from outside, each with cause and remedy in its message; the command ends with exit code 2."""


class PipelineError(Exception):
    """Something outside is not as it must be. The message names cause and remedy."""


class JavaUnfit(PipelineError):
    """No Java, or one on which Spark does not start."""


class SparkUnfit(PipelineError):
    """A Spark of another version than these jobs are written for."""


class JarsMissing(PipelineError):
    """The Kafka connector could not be had."""


class TopicMissing(PipelineError):
    """No such topic, or nobody answers at the bootstrap servers."""


class TopicLostData(PipelineError):
    """The topic no longer holds what comes next."""


class HistoryEmpty(PipelineError):
    """A job found no events to work on."""


class TableUnreadable(PipelineError):
    """A folder or file is not what a job wrote."""


class OutOfSpace(PipelineError):
    """The disk is full."""


class BadOption(PipelineError):
    """An option, or a file named by one, cannot be used."""
