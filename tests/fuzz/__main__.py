"""`make fuzz FOR=10m`: so long with all decoders, or with those named: `python -m tests.fuzz 10m produce_requests`.

Each is fuzzed by atheris (libFuzzer: coverage-guided) in a process of its own, beginning with the corpus that is
committed and the seeds; what is found new stays in .fuzz/. A crash condition is any exception that is no refusal, more
CPU time or memory than target.py allows, and a reading that differs from the oracle's. What is found is left in
.fuzz/<decoder>/crash-...: `python -m tests.fuzz again .fuzz/x/crash-...` shows it. `python -m tests.fuzz keep` adds to
the corpus what was found worth keeping. tests/fuzz/test_corpus.py holds all decoders to it by day.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from pidgate.units import duration_ms
from tests.fuzz.target import LONGEST_BYTES
from tests.fuzz.targets import CORPUS, TARGETS, corpus_of

FOUND: Final = Path(".fuzz")
MOST_KEPT: Final = 60
"""Inputs of one decoder in the corpus, of LONGEST_KEPT_BYTES each."""
LONGEST_KEPT_BYTES: Final = 256


def fuzzed(name: str, seconds: int) -> bool:
    """Fuzz one decoder; whether nothing was found."""
    place = FOUND / name
    inputs = place / "corpus"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus_of(name)):
        (inputs / f"seed-{number}").write_bytes(data)
    command = [sys.executable, "-m", "tests.fuzz.harness", name, str(inputs)]
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST_BYTES}", "-timeout=20", "-rss_limit_mb=2048"]
    log = place / "log"
    with log.open("wb") as output:
        command += [*options, f"-artifact_prefix={place}/"]
        done = subprocess.run(command, stdout=output, stderr=output, check=False)
    lines = log.read_text("utf-8", "replace").splitlines()
    print(f"{name}: {lines[-1]}" if done.returncode == 0 else "\n".join((name, *lines[-30:])), flush=True)
    return done.returncode == 0


def again(path: Path) -> None:
    """Show what is found in one file."""
    TARGETS[path.parent.name].hold(path.read_bytes(), measure_memory=True)


def keep(name: str) -> None:
    """Add the smallest inputs that libFuzzer has kept, each of which reached what none before it did."""
    place = CORPUS / name
    place.mkdir(parents=True, exist_ok=True)
    known = set(corpus_of(name))
    found = sorted((file.read_bytes() for file in (FOUND / name / "corpus").iterdir()), key=len)
    new = [data for data in found if data not in known and len(data) <= LONGEST_KEPT_BYTES]
    for data in new[: MOST_KEPT - len(list(place.iterdir()))]:
        (place / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def main(words: list[str]) -> int:
    if words[:1] == ["again"]:
        again(Path(words[1]))
        return 0
    if words[:1] == ["keep"]:
        for name in words[1:] or TARGETS:
            keep(name)
        return 0
    names = words[1:] or list(TARGETS)
    seconds = duration_ms(words[0]) // 1000 // len(names)
    failed = [name for name in names if not fuzzed(name, seconds)]
    print(f"found something in: {', '.join(failed)}" if failed else "nothing found")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
