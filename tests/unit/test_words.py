"""The house's words: docstrings of the product in plain technical English, modules and commit subjects of a size."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.import_graph import FOLDERS, PACKAGE, ROOT, sources

PRODUCT = (*FOLDERS, PACKAGE, "bench", "deploy", "examples")
LONGEST_MODULE = 400
LONGEST_SUBJECT = 72
FIRST_COMMIT = "ae380a1"
"""Subjects of commits after this one are looked at; where it is not part of the history, none."""

LANDED_TOO_LONG = frozenset(
    (
        "Simulate a Kafka cluster: Fetch, ListOffsets, and connections on an event loop",
        "Simulator: leaders that do not rest; ids paid for when partitions are added",
    )
)
"""What others have built on is not rewritten for its subject."""

THIRD_PERSON = re.compile(
    "(add|allow|ask|bring|check|drop|find|fix|give|hold|keep|let|make|merge|move|put|read|remove|rename|replace|say|send|"
    "set|show|split|take|tell|turn|use|write)e?s"
)
LOOK_FINITE = frozenset({"bring", "embed", "exceed", "feed", "need", "seed", "speed"})

RIDDLES = frozenset({"What", "Who", "Whom", "Whose", "How", "Whether", "Where", "When", "Why", "Which"})

FINITE = re.compile(
    # Verbs that are no noun's plural, and any word that has an object behind it.
    "(Raises|Takes|Stands|Puts|Makes|Follows|Decides|Goes|Reads|Finds|Walks|Returns|Says|Gets|Writes|Keeps|Shows|Prints|"
    "Fills|Collects|Reaches|Notices|Opens|Learns|Brings|Sends|Listens|Connects|Saves|Gives|Passes|Works|Turns|Computes|"
    "Knows|Begins|Inserts|Restores|Compares|Appends|Tries|Feeds|Does|Has|Is|Holds|Adds|Removes|Maps|Waits|Uses|Tells)\\b|"
    "[A-Z][a-z]{2,}s (the|an|what|whatever|whoever|whether|each|every|them)\\b"
)
"""Beginning of a docstring that says in the third person what is done, instead of naming the thing or commanding it."""

OLD_WORDS = re.compile(
    r"holder_(connected|lost)|[\"\'`]holder\b|\bholder of (its|the) state|(?<!kn)own_topic|\bRemoteState\b"
)
"""Of ours, replaced by Kafka's: state owner, gateway topic."""

NOT_TECHNICAL = re.compile(r"\b(tells?|told|telling|said|asks? itself|hears?|heard)\b", re.IGNORECASE)

OWN_AFFAIR = frozenset({"AssertionError", "NotImplementedError", "Exit"})
"""Not for callers to catch; Exit ends a command, whose docstring is its help text."""

RULES = ("riddles", "third person", "not technical", "old words", "raises", "long modules")


@cache
def files() -> list[tuple[str, str, ast.Module]]:
    """Return path, text and tree of each module of the product."""
    texts = {path: (ROOT / path).read_text("utf-8") for path in sources(*PRODUCT)}
    return [(path, text, ast.parse(text)) for path, text in texts.items()]


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of the module, of classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text.strip()


def comments(text: str) -> Iterator[str]:
    if not NOT_TECHNICAL.search(text):  # most: cutting a text into tokens takes long
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def first_word(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of the module and methods of its public classes that others may call."""
    bodies = [
        tree.body,
        *(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"),
    ]
    for body in bodies:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                yield node


def raised(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names of the exceptions that the function's own statements raise; what it catches and raises again is not."""
    names, todo = set(), list[ast.AST](function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Raise) and node.exc is not None:
            call = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
            if name[:1].isupper() and name not in OWN_AFFAIR:
                names.add(name)
    return names


def undocumented(tree: ast.Module) -> Iterator[str]:
    """`function: exception` for what a public function raises and its docstring does not name after "Raises"."""
    for function in public_functions(tree):
        text = ast.get_docstring(function) or ""
        after = text[text.find("Raise") :] if "Raise" in text else ""
        for name in sorted(raised(function)):
            if name not in after:
                yield f"{function.name}: {name}"


def breaches(rule: str) -> list[str]:
    """Return the places where a rule is broken."""
    found = list[str]()
    for path, text, tree in files():
        if rule == "riddles":
            found += [f"{path}: {doc}" for doc in docstrings(tree) if first_word(doc) in RIDDLES]
        elif rule == "third person":
            found += [f"{path}: {doc}" for doc in docstrings(tree) if FINITE.match(doc)]
        elif rule == "old words":
            found += [f"{path}: {word[0]}" for word in OLD_WORDS.finditer(text)]
        elif rule == "not technical":
            words = [*docstrings(tree), *comments(text)]
            found += [f"{path}: {word}" for word in words if NOT_TECHNICAL.search(word)]
        elif rule == "raises":
            found += [f"{path}: {name}" for name in undocumented(tree)]
        elif len(text.splitlines()) > LONGEST_MODULE:
            found.append(path)
    return found


@pytest.mark.parametrize("rule", RULES)
def test_nothing_breaks_a_rule(rule: str) -> None:
    assert breaches(rule) == []


def subjects() -> list[str]:
    """Subjects of the commits after FIRST_COMMIT, none where git or that commit is missing."""
    command = ["git", "log", "--no-merges", "--format=%s", f"{FIRST_COMMIT}..HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def is_good(subject: str) -> bool:
    """Return whether a commit's subject is short and, after an optional area and colon, imperative."""
    area, _, rest = subject.partition(": ")
    verb = first_word(rest if rest and area.count(" ") < 2 else subject).lower()
    finite = THIRD_PERSON.fullmatch(verb) or (re.search("(ed|ing)$", verb) and verb not in LOOK_FINITE)
    return len(subject) <= LONGEST_SUBJECT and not finite


def test_commit_subjects_are_short_and_imperative() -> None:
    found = [subject for subject in subjects() if not is_good(subject)]
    assert [subject for subject in found if subject not in LANDED_TOO_LONG] == []


@pytest.mark.parametrize(
    ("subject", "good"),
    [
        ("Install one package, pidgate", True),
        ("Bench: compare two commits run by run", True),
        ("Pass the clock in", True),
        ("Speak one encoding between processes: pickled bodies", True),
        ("Bench: measured again", False),
        ("Adds a word", False),
        ("Renaming things", False),
        ("Add " + "word " * 15, False),
    ],
)
def test_a_subject_is_judged(subject: str, good: bool) -> None:
    assert is_good(subject) is good


def test_breaches_are_found() -> None:
    tree = ast.parse(
        '"""Head."""\nclass A:\n    b: int\n    """What b is."""\n    def f(self):\n        raise Bad(1)'
    )
    assert [doc for doc in docstrings(tree) if first_word(doc) in RIDDLES] == ["What b is."]
    assert list(undocumented(tree)) == ["f: Bad"]
    named = ast.parse('def f():\n    """Do it. Raises errors.Bad when it cannot."""\n    raise errors.Bad')
    assert list(undocumented(named)) == []
    assert NOT_TECHNICAL.search("a worker is told")
    third_person = ("Takes a frame.", "Raises Bad.", "Names the mechanism.", "Streams what it gets.")
    assert all(FINITE.match(doc) for doc in third_person)
    assert not any(
        FINITE.match(doc) for doc in ("Names of topics.", "Ids a broker gets.", "Take a frame.", "Bounds.")
    )
    old = (
        "log.info('holder_lost')",
        'role == "holder"',
        'cause = "own_topic"',
        "the holder of the state",
        "RemoteState",
    )
    assert all(OLD_WORDS.search(text) for text in old)
    assert not OLD_WORDS.search("placeholder, unknown_topic, the state owner")
