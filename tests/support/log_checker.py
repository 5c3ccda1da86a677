"""The log checker lives in the sandbox, whose demo is judged by it, too; tests find it here."""

from pidgate.sandbox.log_checker import (
    Finding,
    Isolation,
    LogCheckFailed,
    LogRecord,
    Verdict,
    check,
    read_log,
)

__all__ = ["Finding", "Isolation", "LogCheckFailed", "LogRecord", "Verdict", "check", "read_log"]
