"""All decoders that are fuzzed, by name, and their corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.fuzz import answers, documents, identities, others, own_answers, requests
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for module in (requests, answers, own_answers, identities, documents, others)
    for target in module.TARGETS
}

CORPUS: Final = Path(__file__).with_name("corpus")


def corpus_of(name: str) -> list[bytes]:
    """Return the seeds and what fuzzing has kept."""
    kept = sorted((CORPUS / name).glob("*"))
    return [*TARGETS[name].seeds(), *(file.read_bytes() for file in kept)]
