"""The verdict of the log checker as an assertion, with examples of each fault."""

from __future__ import annotations

from typing import Final

from tools.sandbox.log_checker import Verdict

_EXAMPLES_SHOWN: Final = 10


class LogCheckFailed(AssertionError):
    """The log contradicts the producers' answers. The message lists how, with examples."""


def raise_if_bad(verdict: Verdict) -> None:
    """Raises LogCheckFailed."""
    if verdict.is_good:
        return
    lines = [verdict.summary()]
    for fault in verdict.FAULTS:
        findings = getattr(verdict, fault)
        lines += [f"  {fault.replace('_', ' ')}: {finding}" for finding in findings[:_EXAMPLES_SHOWN]]
        if len(findings) > _EXAMPLES_SHOWN:
            lines.append(f"  {fault.replace('_', ' ')}: and {len(findings) - _EXAMPLES_SHOWN} more")
    raise LogCheckFailed("\n".join(lines))
