"""Kafka's ssl.principal.mapping.rules: a certificate's distinguished name -> a principal's name. PURE.

Rules are RULE:pattern/replacement/[LU] and DEFAULT, separated by commas. The first rule with a pattern that
matches the whole name applies. Patterns are Java's; those that Python does not, or may not, read alike are
refused (shared_patterns.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pidgate.gateway.config.shared_patterns import NotShared, compiled

DEFAULT_RULES: Final = "DEFAULT"

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_PARSER: Final = re.compile(_RULE, re.ASCII)
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_LONGEST_REFERENCE_DIGITS: Final = 9
"""Kafka fails on larger numbers, for each certificate."""
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""Characters removed by Java's String.trim."""
_OTHER_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")
"""Line ends in Java's patterns but not in Python's. So is a carriage return, which may separate rules."""


class NotARule(ValueError):
    """An unusable rule. The text is the reason."""


class NoRuleApplies(Exception):
    """None of the rules matches a name. Kafka closes such a connection."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    `pattern` None: DEFAULT, the name unchanged. `parts` of the replacement: texts and group numbers.
    """

    pattern: re.Pattern[str] | None
    parts: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the principal's name, empty if it would be invalid text; None if the pattern does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self._replaced(self.pattern, name)
        if self.case == "L":
            return found.lower()
        return found.upper() if self.case == "U" else found

    def _replaced(self, pattern: re.Pattern[str], name: str) -> str:
        """Replace like Java's replaceAll: repeatedly, if the pattern matches a part of the name or nothing.

        After an empty match Java continues behind the next character, Python's re.sub in front of it.
        """
        parts, copied, at = list[str](), 0, 0
        while at <= len(name) and (match := pattern.search(name, at)) is not None:
            start, at = match.span()
            parts += name[copied:start], self._expanded(match)
            copied = at
            if start == at:
                if name[at : at + 1] > "\uffff":
                    return ""  # Java continues within this character and splits it in halves
                at += 1
        return "".join((*parts, name[copied:]))

    def _expanded(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.parts)


class PrincipalRules:
    """The rules of one listener. Raises NotARule."""

    def __init__(self, text: str) -> None:
        if (odd := _OTHER_LINE_ENDS.search(text)) is not None:
            raise NotARule(
                f"holds the character U+{ord(odd[0]):04X}, an end of a line to Kafka; leave it out"
            )
        found = (match[1] for match in _SPLITTER.finditer(text.strip(_TRIMMED)))
        self.rules = tuple(rule for one in found if (rule := _rule(one)) is not None)
        if not self.rules:
            raise NotARule("contains no rule, so no certificate would be admitted; write DEFAULT")

    def principal(self, name: str) -> str:
        """Apply the first rule that matches a distinguished name. Raises NoRuleApplies."""
        for rule in self.rules:
            found = rule.apply(name)
            if found is not None:
                return found
        raise NoRuleApplies(name)


def _rule(text: str) -> Rule | None:
    """Parse a rule. None: an empty one, which Kafka ignores. Raises NotARule."""
    if "\n" in text or "\r" in text:
        raise NotARule(f"{text[:100]!r} goes over more than one line; write each rule on one")
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
    try:
        return compiled(pattern)
    except NotShared as error:
        raise NotARule(f"the pattern {pattern[:100]!r} cannot be used: {error}") from error


def _parts(replacement: str, groups: int) -> Iterator[str | int]:
    """Yield the parts of a replacement, parsed like Java's Matcher.appendReplacement. Raises NotARule."""
    text = _with_literal_reference(replacement, groups)
    at = 0
    while at < len(text):
        if text[at] == "\\":
            yield text[at + 1 : at + 2]
            at += 2
        elif text[at] == "$":
            digits = _DIGITS.match(text, at + 1)
            if digits is None or int(digits[0][0]) > groups:
                raise NotARule(
                    f"the replacement {replacement[:100]!r} refers to a group missing in its pattern; write (..) "
                    "around the group, or \\$ for the character"
                )
            group, at = int(digits[0][0]), at + 2
            # Further digits belong to the number as long as such a group exists.
            for digit in digits[0][1:]:
                if 10 * group + int(digit) > groups:
                    break
                group, at = 10 * group + int(digit), at + 1
            yield group
        else:
            yield text[at]
            at += 1


def _with_literal_reference(replacement: str, groups: int) -> str:
    """Escape a reference to a missing group: Kafka treats it as text, unless the pattern has no group at all.

    Of several such references Kafka escapes the first and misplaces the escape of the next, so that no client
    is admitted. Raises NotARule.
    """
    if not groups:
        return replacement
    missing = []
    for match in _REFERENCE.finditer(replacement):
        number = match[1]
        if len(number) > _LONGEST_REFERENCE_DIGITS:
            raise NotARule(
                f"the replacement {replacement[:100]!r} has too large a number behind a $; shorten it"
            )
        while len(number) > 1 and int(number) > groups:
            number = number[:-1]
        if not number.startswith("0") and int(number) > groups:
            missing.append(match.start())
    if len(missing) > 1:
        raise NotARule(
            f"the replacement {replacement[:100]!r} refers to more than one group that its pattern has not; write \\$ "
            "for the character"
        )
    return "".join((replacement[:at] + "\\" + replacement[at:]) for at in missing) or replacement
