"""ssl.principal.mapping.rules as Kafka reads them: the cases are those of its SslPrincipalMapperTest."""

import pytest

from pidgate.gateway.config.principal_rules import NotARule, PrincipalRules

VALID = [
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
]
INVALID = [
    "default",
    "DEFAUL",
    "DEFAULT/L",
    "DEFAULT/U",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
]
MAPPED = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)
SPLIT = [
    ("[DEFAULT]", "DEFAULT"),
    ("[RULE:/]", "RULE://"),
    ("[RULE:/.*]", "RULE:/.*/"),
    ("[RULE:/.*/L]", "RULE:/.*/L"),
    ("[RULE:/, DEFAULT]", "RULE://,DEFAULT"),
    ("[RULE:/, DEFAULT]", "  RULE:// ,  DEFAULT  "),
    ("[RULE:   /     , DEFAULT]", "  RULE:   /     / ,  DEFAULT  "),
    ("[RULE:  /     /U, DEFAULT]", "  RULE:  /     /U   ,DEFAULT  "),
    (
        "[RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT]",
        "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
    ),
    ("[RULE:/, DEFAULT]", ",,RULE://,,,DEFAULT,,"),
    ("[RULE: /   , DEFAULT]", ",  , RULE: /   /    ,,,   DEFAULT, ,   "),
    ("[RULE:   /  /U, DEFAULT]", "     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,"),
    (r"[RULE:\/\\\(\)\n\t///]", r"RULE:\/\\\(\)\n\t/\/\//"),
    (r"[RULE:\**\/+/*/L, RULE:\/*\**/**]", r"RULE:\**\/+/*/L,RULE:\/*\**/**/"),
    (
        r"[RULE:,RULE:,/,RULE:,//U, RULE:,/RULE:,, RULE:,RULE:,/L,RULE:,/L, RULE:, DEFAULT, /DEFAULT, DEFAULT]",
        r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
    ),
]
"""As Kafka shows them, but for escapes in the replacement, which are read by then."""


def shown(rules: PrincipalRules) -> str:
    texts = []
    for rule in rules.rules:
        if rule.pattern is None:
            texts.append("DEFAULT")
            continue
        replacement = "".join(part if isinstance(part, str) else f"${part}" for part in rule.parts)
        texts.append(f"RULE:{rule.pattern.pattern}/{replacement}" + (f"/{rule.case}" if rule.case else ""))
    return f"[{', '.join(texts)}]"


@pytest.mark.parametrize("rules", VALID)
def test_valid_rules(rules: str) -> None:
    assert PrincipalRules(rules).rules


@pytest.mark.parametrize("rules", INVALID)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(NotARule, match="is no rule; write DEFAULT, or RULE:pattern"):
        PrincipalRules(rules)


@pytest.mark.parametrize(("expected", "rules"), SPLIT)
def test_rules_are_split_as_kafka_does(expected: str, rules: str) -> None:
    assert shown(PrincipalRules(rules)) == expected


@pytest.mark.parametrize("rules", ["", ",   , , ,      , , ,   "])
def test_no_rule_at_all_would_let_nobody_in(rules: str) -> None:
    with pytest.raises(NotARule, match="write DEFAULT"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_counts(name: str, principal: str) -> None:
    assert PrincipalRules(MAPPED).principal(name) == principal


@pytest.mark.parametrize(
    ("rule", "name", "principal"),
    [
        ("RULE:.*/x/", "abc", "xx"),  # Java replaces the empty rest, too
        ("RULE:(a)(b)?/$2$1/", "a", "a"),  # a group without a part is empty
        ("RULE:(a)/$1$4/", "a", "a$4"),  # there is no such group: text
        ("RULE:(a)/$12/", "a", "a2"),
        ("RULE:(a)/$0$0/", "a", "aa"),
        (r"RULE:(a)/\$1\//", "a", "$1/"),
        ("RULE:(.*)/$1/U", "straße", "STRASSE"),
        (r"RULE:(\w+)(.*)/$1/", "aé", "a"),  # classes are ASCII's
    ],
)
def test_replacements_are_javas(rule: str, name: str, principal: str) -> None:
    assert PrincipalRules(rule).principal(name) == principal


@pytest.mark.parametrize(
    ("rule", "name", "principal"),
    [
        # Where nothing was matched, Java looks on behind the next character.
        ("RULE:a{0}|.*/x/", "ab", "xaxbx"),
        ("RULE:|ab/x/", "ab", "xaxbx"),
        ("RULE:a*|.*/x/", "aab", "xxbx"),
        ("RULE:a*|.*/x/", "b\U0001f600", ""),  # it makes halves of a character
        ("RULE:a*|.*/x/", "b\uffff", "xbx\uffffx"),
    ],
)
def test_a_pattern_that_may_match_nothing_replaces_as_java_does(rule: str, name: str, principal: str) -> None:
    assert PrincipalRules(rule).principal(name) == principal


PATTERNS = [
    (r"\p{L}+", r"letter behind a backslash; write \\\\ for a backslash"),
    (r"\Qa\E", "letter behind a backslash"),
    (r"a\Z", "letter behind a backslash"),
    (r"a\v", "letter behind a backslash"),
    (r"\x4", "letter behind a backslash"),
    (r"\ud83d\ude00", "letter behind a backslash"),
    (r"\é", "letter behind a backslash"),
    (r"(\w+)\b.*", r"a word boundary .*; write the neighbouring text"),
    (r"jo\B.*", r"a word boundary"),
    (r"\0101", r"digits behind a backslash; write \\x41"),
    (r"(a)\123", r"digits behind a backslash"),
    (r"(a)\12", r"digits behind a backslash"),
    ("(?<name>a)", r"such a group; write \(\.\.\)"),
    ("(?P<name>a)", "such a group"),
    ("(?x)a b", "such a group"),
    ("(?i:a)", "such a group"),
    ("(?#a)b", "such a group"),
    ("(a)(?(1)b|c)", "such a group"),
    ("a{,2}", r"such braces; write \\{"),
    ("x{", "such braces"),
    ("x{\u0661}", "such braces"),
    ("x{99999}", "such braces"),
    ("[a-z&&[^b]]", r"such a class; write \\\["),
    ("[a-z&&b]", "such a class"),
    ("[&&a]", "such a class"),
    ("a[b[c]]", "such a class"),
    ("[]a]", "such a class"),
    ("[][a]", "such a class"),
    (r"[\b]", "such a class"),
    (r"[\1]", "such a class"),
    ("[a--b]", "Possible set difference.*; use syntax that"),
    ("(", "use syntax that Java and Python read alike"),
    ("a(?i)b", r"\(\?i\) at the beginning"),
    ("(?<=a|bc)d", "lookbehind .* of a fixed length"),
    (r"(a)(?<=\1)b", r"references .* within \(\?<=\.\.\) .*; write characters"),
    ("(?<!b{2})b", "repetitions within"),
    ("(?<=(a))b", r"groups, references"),
    ("(?=(a)).*", r"\(\.\.\) within .*; write \(\?:\.\.\)"),
    ("(?!(a)).*", r"\(\.\.\) within"),
    ("(?>(a))b", r"\(\.\.\) within"),
    ("(a)++b|.*", r"\+\+ behind a group; write it without"),
    ("(a?)*", "behind a group that may match nothing; have it"),
    ("((?=a))*a", "that may match nothing"),
    (r"(a)(\1)*", "that may match nothing"),
]


@pytest.mark.parametrize(("pattern", "why"), PATTERNS)
def test_a_pattern_that_java_and_python_may_not_read_alike_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(NotARule, match=rf"the pattern .* cannot be used: .*{why}") as refused:
        PrincipalRules(f"DEFAULT,RULE:{pattern}/x/")
    assert repr(pattern) in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"CN=\'\-\_\ \,\+\\\[\]\{\}\(\)", r"CN='-_ ,+\[]{}()"),
        (r"(?i)cn=[^,]+", "CN=joe"),
        (r"\x41\u00e9\t?\d\D\w\W\s\S", "Aé1xa- x"),
        (r"(a)(b)\2\1[2]", "abba2"),
        (r"a{2}b{1,}c{0,3}d{2}?e*?f++g?+", "aabddf"),
        (r"(?:a|b)(?=c)(?!d)(?>c+)(?<=c)(?<!d)", "acc"),
        (r"[\]\[\&a-c^-]+[^\d,]", "][&b^-x"),
        ("a]}b", "a]}b"),
        ("(a|b)*((c)|d)+(e*)?", "abcdee"),
        ("[a&b]+", "&a"),
    ],
)
def test_what_both_read_alike_is_taken(pattern: str, name: str) -> None:
    assert PrincipalRules(f"RULE:{pattern}/=$0/").principal(name) == f"={name}"


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("RULE:a/$1/", r"refers to a group missing in its pattern; write \(\.\.\)"),
        ("RULE:(a)/$/", "refers to a group"),
        ("RULE:(a)/${name}/", "refers to a group"),
        ("RULE:(a)/$\u0661/", "refers to a group"),
        (r"RULE:(a)/\$2/", "refers to a group"),  # Kafka escapes what was escaped already
        ("RULE:(a)/$2$3/", r"refers to more than one group that its pattern has not; write \\\$"),
        ("RULE:(a)/x$2b$3/", "refers to more than one group"),
        ("RULE:(a)/$1234567890/", "too large a number"),
        ("\u00a0DEFAULT", "is no rule"),
        ("RULE:(a)/$1/\u00a0,DEFAULT", "is no rule"),
        ("RULE:(a)/$1\u2028/", r"U\+2028, an end of a line to Kafka; leave it out"),
        ("RULE:a\nb/x/", "goes over more than one line; write each rule on one"),
        ("foo\rDEFAULT", "goes over more than one line"),
    ],
)
def test_what_kafka_reads_otherwise_beside_patterns_is_refused(rules: str, why: str) -> None:
    with pytest.raises(NotARule, match=why):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("rule", "principal"),
    [
        ("RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)/$11/", "k"),
        ("RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)/$1\u0661/", "a\u0661"),
        ("RULE:(.*)k/$1²/", "abcdefghij²"),
        ("RULE:(.*)k/$2$1/", "$2abcdefghij"),
        ("\x1f DEFAULT,\r\n RULE:a/b/\n", "abcdefghijk"),
    ],
)
def test_digits_and_blanks_are_asciis(rule: str, principal: str) -> None:
    assert PrincipalRules(rule).principal("abcdefghijk") == principal
