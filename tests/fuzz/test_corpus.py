"""Every decoder, held to the corpus that fuzzing has left (`make fuzz`), and to its seeds."""

import pytest

from tests.fuzz.decoders import NO_DECODERS, decoders, reached
from tests.fuzz.targets import TARGETS, corpus_of

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("name", TARGETS)
def test_corpus(name: str) -> None:
    corpus = corpus_of(name)
    assert corpus
    for data in corpus:
        TARGETS[name].hold(data, measure_memory=True)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_taken(name: str) -> None:
    """Whatever is refused is compared with nothing."""
    taken = [TARGETS[name].decoded(data) is not None for data in TARGETS[name].seeds()]
    assert sum(taken) >= len(taken) / 3


def test_every_decoder_has_a_target() -> None:
    """A new one without a target fails here."""
    found: set[str] = set()
    for target in TARGETS.values():
        found |= reached(lambda target=target: [target.decoded(data) for data in target.seeds()])  # type: ignore[misc]
    wanted = decoders() - NO_DECODERS.keys()
    assert wanted - found == set(), (
        "no target comes here; if it reads nothing from outside, say so in decoders.py"
    )


def test_what_is_no_decoder_is_there() -> None:
    assert NO_DECODERS.keys() <= decoders()
