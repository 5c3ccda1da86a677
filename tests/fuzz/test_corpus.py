"""Every decoder, held to the corpus that fuzzing has left (`make fuzz`), and to its seeds."""

import pytest

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
