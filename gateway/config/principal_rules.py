"""Kafka's ssl.principal.mapping.rules: a certificate's distinguished name -> a principal's name. PURE.

RULE:pattern/replacement/[LU] and DEFAULT, separated by commas; the first whose pattern matches the whole name counts.
Patterns are Java's. Python reads nearly all of them alike; one that it does not, or not surely, is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DEFAULT_RULES: Final = "DEFAULT"

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_PARSER: Final = re.compile(_RULE)
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)


class NotARule(ValueError):
    """A rule that cannot be used, and why."""


class NoRuleApplies(Exception):
    """None of the rules matches a name. Kafka closes such a connection."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `pattern` None: DEFAULT, the name as it is. `parts` of the replacement: texts and numbers of groups."""

    pattern: re.Pattern[str] | None
    parts: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the principal's name; None where the pattern does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As Java's replaceAll: a pattern that may match less than all, or nothing, replaces more than once.
        found = self.pattern.sub(self._expanded, name)
        if self.case == "L":
            return found.lower()
        return found.upper() if self.case == "U" else found

    def _expanded(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.parts)


class PrincipalRules:
    """The rules of one listener. Raises NotARule."""

    def __init__(self, text: str) -> None:
        found = (match[1] for match in _SPLITTER.finditer(text.strip()))
        self.rules = tuple(rule for one in found if (rule := _rule(one)) is not None)
        if not self.rules:
            raise NotARule("holds no rule, so that no certificate would be let in; write DEFAULT")

    def principal(self, name: str) -> str:
        """Return what the first rule that matches makes of a distinguished name. Raises NoRuleApplies."""
        for rule in self.rules:
            found = rule.apply(name)
            if found is not None:
                return found
        raise NoRuleApplies(name)


def _rule(text: str) -> Rule | None:
    """Return the rule; None for an empty one, which Kafka ignores. Raises NotARule."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise NotARule(
            f"{text[:100]!r} is no rule; write DEFAULT, or RULE:pattern/replacement/ with L or U behind it"
        )
    if match[1] is not None:
        return Rule(None)
    if match[2] is None:
        return None
    pattern = _compiled(match[2])
    return Rule(pattern, tuple(_parts(match[4], pattern.groups)), match[6])


def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a rule's pattern. Raises NotARule."""
    cause = ""
    if "(?P" in pattern:
        cause = "groups are written by their number"
    elif _has_class_in_class(pattern):
        cause = "a class within a class"
    with warnings.catch_warnings():
        # && in a class is Java's alone.
        warnings.simplefilter("error")
        try:
            compiled = re.compile(pattern, re.ASCII)
        except (re.error, Warning, RecursionError, OverflowError) as error:
            cause = str(error)
    if cause:
        raise NotARule(
            f"the pattern {pattern[:100]!r} cannot be used ({cause}); write it with what Java and Python read alike: "
            "classes such as [a-z], groups by number, no \\p{..}, no (?<name>..)"
        )
    return compiled


def _has_class_in_class(pattern: str) -> bool:
    is_within = False
    for char in re.sub(r"\\.", "", pattern, flags=re.DOTALL):
        if is_within and char == "[":
            return True
        is_within = char == "[" or (is_within and char != "]")
    return False


def _parts(replacement: str, groups: int) -> Iterator[str | int]:
    """Yield the parts of a replacement, read as Java's Matcher.appendReplacement does. Raises NotARule."""
    text = _with_literal_references(replacement, groups)
    at = 0
    while at < len(text):
        if text[at] == "\\":
            yield text[at + 1 : at + 2]
            at += 2
        elif text[at] == "$":
            number = re.compile(r"\d", re.ASCII).match(text, at + 1)
            if number is None or int(number[0]) > groups:
                raise NotARule(
                    f"the replacement {replacement[:100]!r} refers to a group that its pattern has not"
                )
            group, at = int(number[0]), at + 2
            # Further digits belong to the number as long as there is such a group.
            while text[at : at + 1].isdigit() and 10 * group + int(text[at]) <= groups:
                group, at = 10 * group + int(text[at]), at + 1
            yield group
        else:
            yield text[at]
            at += 1


def _with_literal_references(replacement: str, groups: int) -> str:
    """Escape a reference to a group that there is not: to Kafka it is text, unless the pattern has no group at all."""
    if not groups:
        return replacement
    text, added = replacement, 0
    for match in _REFERENCE.finditer(replacement):
        number = match[1]
        while len(number) > 1 and int(number) > groups:
            number = number[:-1]
        if not number.startswith("0") and int(number) > groups:
            at = match.start() + added
            text, added = f"{text[:at]}\\{text[at:]}", added + 1
    return text
