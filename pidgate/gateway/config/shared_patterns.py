"""Regular expressions read alike by Java and Python, defined by an allow-list of syntax. PURE.

All other syntax is refused, whether the two differ or are merely untested: a pattern read differently would
give a certificate another name than the brokers do. Names contain no line ends (gateway/tls/principals.py).
"""

from __future__ import annotations

import re
import warnings
from typing import Final

_ESCAPE: Final = r"\\(?:[ !-/:-@\[-`{-~]|[dDwWsStnrf]|x[0-9A-Fa-f]{2}|u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})"
"""Halves of a surrogate pair are one character in Java, and two unmatchable ones in Python."""
_CLASS: Final = rf"\[\^?+(?:[^\\\[\]&]|&(?!&)|{_ESCAPE})+\]"
_GROUP: Final = r"\((?:(?!\?)|\?(?:[:=!>]|<[=!]|i\)))"
_BACK_REFERENCE: Final = r"\\[1-9](?![0-9])"
_REPETITION: Final = r"\{[0-9]{1,4}(?:,[0-9]{0,4})?\}"
_SHARED: Final = re.compile(rf"(?:[^\\\[({{]|{_ESCAPE}|{_CLASS}|{_GROUP}|{_BACK_REFERENCE}|{_REPETITION})*+")
_TOKEN: Final = re.compile(rf"\\.|{_CLASS}|\((?:\?(?:<?[=!]|[:>]|i\)))?|\)|[*+?]|{_REPETITION}", re.DOTALL)
"""Tokens of a shared pattern longer than a character."""
_REPEATED: Final = re.compile(rf"(?:[*+?]|{_REPETITION})(?:\?|(\+))?")
_LOOKS: Final = ("(?=", "(?!", "(?<")

_ELSEWHERE: Final = (
    (r"\\[bB]", "a word boundary next to non-ASCII letters; write the neighbouring text, such as (,.*|$)"),
    (r"\\[0-9]", r"the digits behind a backslash; write \x41 for a character, and \1[2] for a 2 behind a reference"),
    (r"\\[\s\S]", r"the letter behind a backslash; write \\ for a backslash, and classes such as [a-z] for others"),
    (r"\(\?", "such a group; write (..), (?:..), (?=..), (?!..), (?<=..), (?<!..), (?>..), and (?i) at the beginning"),
    (r"\{", r"such braces; write \{ for the character, and {2}, {2,} or {2,9} to repeat"),
    (r"\[", r"such a class; write \[, \] and \& for these characters, \x41 or \u0041 for others, no class within it"),
)  # fmt: skip
"""Beginnings of text after the end of the allow-list, and the construct that the two may read differently."""


class NotShared(ValueError):
    """An invalid pattern, or one that Java and Python may read differently. The text has reason and remedy."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with ASCII character classes, as in Java. Raises NotShared."""
    shared = _SHARED.match(pattern)
    end = 0 if shared is None else shared.end()
    for beginning, cause in _ELSEWHERE:
        if re.compile(beginning).match(pattern, end):
            raise NotShared(f"at {pattern[end : end + 20]!r}: Java and Python may not read alike {cause}")
    with warnings.catch_warnings():
        # Python warns of syntax that may become a set operation.
        warnings.simplefilter("error")
        try:
            found = re.compile(pattern, re.ASCII)
        except (re.error, Warning, RecursionError, OverflowError) as error:
            raise NotShared(
                f"{error}; use syntax that Java and Python read alike: groups by number, (?i) at the beginning, "
                "lookbehind (?<= of a fixed length"
            ) from error
    if cause := _unlike_in_groups(pattern):
        raise NotShared(f"Java and Python may not read alike {cause}")
    return found


def _unlike_in_groups(pattern: str) -> str:
    """Return the syntax within or behind groups that the two may treat differently; empty: none.

    Java keeps a group's match although its alternative was abandoned, unless it backtracks into a part of the
    pattern, and it ends repetitions of an empty match in its own way.
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
    """Return False only if a group certainly matches at least one character."""
    if any(token.startswith(_LOOKS) for token in _TOKEN.findall(group)):
        return True
    try:
        return re.fullmatch(group, "", re.ASCII) is not None
    except re.error:  # a reference to another group
        return True
