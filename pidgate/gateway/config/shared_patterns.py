"""Regular expressions that Java and Python read alike: an allow-list of what they may be written with. PURE.

What is not in it is refused, whether the two read it otherwise or nobody has looked: a pattern that is read otherwise
gives a certificate another name than the brokers give it. Names hold no ends of lines (gateway/tls/principals.py).
"""

from __future__ import annotations

import re
import warnings
from typing import Final

_ESCAPE: Final = r"\\(?:[ !-/:-@\[-`{-~]|[dDwWsStnrf]|x[0-9A-Fa-f]{2}|u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})"
"""Halves of a surrogate pair are one character to Java, and two that nothing matches to Python."""
_CLASS: Final = rf"\[\^?+(?:[^\\\[\]&]|&(?!&)|{_ESCAPE})+\]"
_GROUP: Final = r"\((?:(?!\?)|\?(?:[:=!>]|<[=!]|i\)))"
_BACK_REFERENCE: Final = r"\\[1-9](?![0-9])"
_REPETITION: Final = r"\{[0-9]{1,4}(?:,[0-9]{0,4})?\}"
_SHARED: Final = re.compile(rf"(?:[^\\\[({{]|{_ESCAPE}|{_CLASS}|{_GROUP}|{_BACK_REFERENCE}|{_REPETITION})*+")
_TOKEN: Final = re.compile(rf"\\.|{_CLASS}|\((?:\?(?:<?[=!]|[:>]|i\)))?|\)|[*+?]|{_REPETITION}", re.DOTALL)
"""Of a pattern that is shared: whatever is more than a character."""
_REPEATED: Final = re.compile(rf"(?:[*+?]|{_REPETITION})(?:\?|(\+))?")
_LOOKS: Final = ("(?=", "(?!", "(?<")

_ELSEWHERE: Final = (
    (r"\\[bB]", "a word's edge, beside letters beyond ASCII; write what stands there, such as (,.*|$)"),
    (r"\\[0-9]", r"the digits behind a backslash; write \x41 for a character, and \1[2] for a 2 behind a reference"),
    (r"\\[\s\S]", r"the letter behind a backslash; write \\ for a backslash, and classes such as [a-z] for others"),
    (r"\(\?", "such a group; write (..), (?:..), (?=..), (?!..), (?<=..), (?<!..), (?>..), and (?i) at the beginning"),
    (r"\{", r"such braces; write \{ for the character, and {2}, {2,} or {2,9} to repeat"),
    (r"\[", r"such a class; write \[, \] and \& for these characters, \x41 or \u0041 for others, no class within it"),
)  # fmt: skip
"""Beginnings of the place where the allow-list ends, and the part there that the two may read otherwise."""


class NotShared(ValueError):
    """A pattern that Java and Python may read otherwise, or that is none: why, and what to write."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; its classes are ASCII's, as Java's are. Raises NotShared."""
    shared = _SHARED.match(pattern)
    end = 0 if shared is None else shared.end()
    for beginning, cause in _ELSEWHERE:
        if re.compile(beginning).match(pattern, end):
            raise NotShared(f"at {pattern[end : end + 20]!r}: Java and Python may not read alike {cause}")
    with warnings.catch_warnings():
        # Of what may become a set operation some day.
        warnings.simplefilter("error")
        try:
            found = re.compile(pattern, re.ASCII)
        except (re.error, Warning, RecursionError, OverflowError) as error:
            raise NotShared(
                f"{error}; write it with what Java and Python read alike: groups by number, (?i) at the beginning, "
                "what stands behind (?<= of one length"
            ) from error
    if cause := _unlike_in_groups(pattern):
        raise NotShared(f"Java and Python may not read alike {cause}")
    return found


def _unlike_in_groups(pattern: str) -> str:
    """Return what a pattern has within groups, or behind one, that the two may treat otherwise; empty: nothing.

    Java keeps what a group has found although its way was left, where it does not go back into a part of the pattern,
    and ends a repetition of nothing in its own way.
    """
    within = list[tuple[str, int]]()
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        is_behind = any(opened.startswith("(?<") for opened, _start in within)
        if token == ")":
            group = pattern[within.pop()[1] : match.end()]
            repeated = _REPEATED.match(pattern, match.end())
            if repeated is not None and repeated[1]:
                return f"{repeated[0]} behind a group; write it without the + at its end"
            if repeated is not None and repeated[0][0] != "?" and _may_be_nothing(group):
                return (
                    f"{repeated[0]} behind a group that may match nothing; have it match a character at least"
                )
        elif is_behind and (token[0] in "*+?{(" or token[1:].isdecimal()):
            return "groups, references and repetitions within (?<=..) and (?<!..); write characters and classes there"
        elif token == "(" and any(opened not in ("(", "(?:") for opened, _start in within):
            return "(..) within (?=..), (?!..) and (?>..); write (?:..) there"
        elif token.startswith("(") and token != "(?i)":
            within.append((token, match.start()))
    return ""


def _may_be_nothing(group: str) -> bool:
    """Return True unless it is sure that a group matches one character at least."""
    if any(token.startswith(_LOOKS) for token in _TOKEN.findall(group)):
        return True
    try:
        return re.fullmatch(group, "", re.ASCII) is not None
    except re.error:  # it refers to a group beside it
        return True
