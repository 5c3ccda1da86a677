"""ssl.principal.mapping.rules as Kafka reads them: the cases are those of its SslPrincipalMapperTest."""

import pytest

from pidgate.gateway.config.principal_rules import NoRuleApplies, NotARule, PrincipalRules

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


def test_a_comma_with_whitespace() -> None:
    rules = PrincipalRules(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert rules.principal(r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


def test_no_rule_that_applies() -> None:
    with pytest.raises(NoRuleApplies, match="OU=x"):
        PrincipalRules("RULE:^CN=(.*)$/$1/").principal("OU=x")


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
    "rule",
    [
        r"RULE:\p{L}+/x/",
        r"RULE:\Qa\E/x/",
        "RULE:(?<name>a)/x/",
        "RULE:(?P<name>a)/x/",
        "RULE:[a-z&&[^b]]/x/",
        "RULE:[a-z&&b]/x/",
        "RULE:a[b[c]]/x/",
        "RULE:(/x/",
        "RULE:a/$1/",
        "RULE:(a)/$/",
        "RULE:(a)/${name}/",
    ],
)
def test_what_python_reads_otherwise_is_refused_with_the_rule(rule: str) -> None:
    with pytest.raises(NotARule, match=r"the pattern .*write it with|the replacement .*refers to a group"):
        PrincipalRules(rule)
