"""Errors from outside, each with cause and remedy in its message; the command ends with exit code 2.

PipelineError
    JavaUnfit         no Java, or one on which Spark does not start
    JarsMissing       the Kafka connector could not be had
    TopicMissing      no such topic, or nobody answers at the bootstrap servers
    TopicLostData     the topic no longer holds what comes next
    HistoryEmpty      a job found no events to work on
    TableUnreadable   a folder or file is not what a job wrote
    OutOfSpace        the disk is full
    BadOption         an option, or a file named by one, cannot be used
"""


class PipelineError(Exception):
    """Something outside is not as it must be. The message names cause and remedy."""


class JavaUnfit(PipelineError):
    pass


class JarsMissing(PipelineError):
    pass


class TopicMissing(PipelineError):
    pass


class TopicLostData(PipelineError):
    pass


class HistoryEmpty(PipelineError):
    pass


class TableUnreadable(PipelineError):
    pass


class OutOfSpace(PipelineError):
    pass


class BadOption(PipelineError):
    pass
