"""The core of the lane passes what Python passes, counts what it counts, and nothing else: see core_fuzz.py.

The sanitizers and the mutants run by night.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.protocol.fetch import EndpointsWalker
from tests.support.bounds import THOROUGH, examples
from tests.support.core_fuzz import APIS, FETCH, UNTIL_MS, fuzz
from tests.support.core_reference import tail_at
from tests.support.frames import entities, entity_class, response_frame
from tests.support.native_core import (
    SANITIZERS,
    WARNINGS,
    Change,
    Granted,
    NativeCore,
    Next,
    Passing,
    build,
    compiler,
    load,
)
from tests.support.rules import rule

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")

GRANTED = Granted(
    head=b"\0\0\0\x0b",
    same=b"\0\x01c\0\0\xff\xff" + bytes(4),
    id=bytes(10),
    version=11,
    acks=-1,
    transactional=False,
    until_ms=UNTIL_MS,
    most_streamed_bytes=1 << 20,
    topics={b"orders": range(3)},
    apis=APIS,
    guarded=(FETCH,),
    needles=(b"pidgate-events",),
)
FETCH_REQUEST = (8).to_bytes(4, "big") + b"\0\x01\0\x10" + b"\0\0\0\x07"
CORRELATION_ID = FETCH_REQUEST[-4:]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return load(build(tmp_path_factory.mktemp("core"), flags=WARNINGS))


@pytest.fixture
def core(native: ctypes.CDLL) -> Iterator[NativeCore]:
    """A core with a Fetch in flight."""
    core = NativeCore(native, GRANTED)
    assert core.look(FETCH_REQUEST, 0, is_request=True) == (len(FETCH_REQUEST), Next.MORE)
    yield core
    core.close()


@rule(
    "A lane passes no request and no answer that Python would not pass, and counts what Python counts, however the "
    "bytes are cut.",
    "protocol",
)
def test_a_core_does_what_python_does(native: ctypes.CDLL) -> None:
    connections = 20_000 if THOROUGH else 300
    seen = fuzz(native, Random(40), connections)
    # Most of what is plain passes.
    assert min(seen["requests"], seen["answers"], seen["spliced"]) > connections


@settings(max_examples=examples(300))
@given(data=st.data())
def test_a_fetch_answer_passes_up_to_tags_that_may_hold_addresses(
    native: ctypes.CDLL, data: st.DataObject
) -> None:
    """Answers of a real codec, with every field drawn."""
    version = data.draw(st.sampled_from((16, 17, 18)))
    frame = response_frame(data.draw(entities(entity_class(FETCH, version))))
    answer = len(frame).to_bytes(4, "big") + frame
    at = tail_at(frame, version)
    assert at is not None
    core = NativeCore(native, GRANTED._replace(apis={(FETCH, version): Passing.ENDS_IN_TAGS}))
    request = (8).to_bytes(4, "big") + b"\0\x01" + version.to_bytes(2, "big") + frame[:4]
    core.look(request, 0, is_request=True)
    cuts = data.draw(
        st.one_of(st.just(range(len(answer))), st.lists(st.integers(0, len(answer)), max_size=6))
    )
    passed = 0
    following = Next.MORE
    for end in (*sorted(cuts), len(answer)):
        step, following = core.look(answer[passed:end], 0, is_request=False)
        passed += step
    assert passed == 4 + at
    assert following is (Next.MORE if at == len(frame) else Next.AT_TAGS)
    assert core.state.answer_left == len(frame) - at
    core.close()


@settings(max_examples=examples(300))
@given(data=st.data())
def test_python_goes_on_where_the_walk_of_a_fetch_answer_ended(
    native: ctypes.CDLL, data: st.DataObject
) -> None:
    frame = response_frame(data.draw(entities(entity_class(FETCH, 16))))
    request = FETCH_REQUEST[:-4] + frame[:4]
    answer = len(frame).to_bytes(4, "big") + frame
    at = data.draw(st.integers(8, len(answer)))

    def translate(node_id: int, host: str, port: int) -> tuple[str, int]:
        return "g" * len(host.encode()), port

    core = NativeCore(native, GRANTED)
    core.look(request, 0, is_request=True)
    passed, _ = core.look(answer[:at], 0, is_request=False)
    left = core.state.answer_left
    if left:
        rest = EndpointsWalker(FETCH, 16, left, translate)
        rest.resume(core.walk)
        whole = EndpointsWalker(FETCH, 16, len(frame), translate)
        expected = b"".join(whole.feed_chunk(memoryview(frame)))
        assert b"".join(rest.feed_chunk(memoryview(answer[passed:]))) == expected[-left:]
        assert rest.done
    core.close()


@pytest.mark.parametrize(("tag_bytes", "following"), [(4_000, Next.MORE), (4_100, Next.BROKEN)])
def test_a_unit_that_is_cut_has_a_longest_length(core: NativeCore, tag_bytes: int, following: Next) -> None:
    tags = b"\x01\x05" + bytes((tag_bytes & 0x7F | 0x80, tag_bytes >> 7)) + bytes(tag_bytes)
    frame = CORRELATION_ID + tags + bytes(10) + b"\x01" + b"\0"
    answer = len(frame).to_bytes(4, "big") + frame
    assert core.look(answer[:1_000], 0, is_request=False) == (4, Next.MORE)
    assert core.look(answer[4:4_106], 0, is_request=False)[1] is following


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
def test_a_long_unit_that_is_whole_passes(core: NativeCore, whole: bool) -> None:
    frame = CORRELATION_ID + b"\x01\x05\x80\x40" + bytes(8_192) + bytes(10) + b"\x01" + b"\0"
    answer = len(frame).to_bytes(4, "big") + frame
    if not whole:
        assert core.look(answer[:5_000], 0, is_request=False) == (4, Next.BROKEN)
        return
    assert core.look(answer, 0, is_request=False) == (len(answer), Next.MORE)


MUTANTS: dict[str, Sequence[Change]] = {
    "a grant that has ended is used": [("now_ms >= grant->until_ms", "0")],
    "another client id passes": [
        (
            "memcmp(frame + REQUEST_HEAD_BYTES, grant->same, "
            "least(arrived - REQUEST_HEAD_BYTES, grant->same_bytes)) != 0",
            "0",
        )
    ],
    "another epoch passes": [("grant->id, sizeof grant->id) != 0", "grant->id, sizeof grant->id - 2) != 0")],
    "a partition that is not granted passes": [
        ("!(grant->topic[topic].allowed[partition / 64] >> partition % 64 & 1)", "0")
    ],
    "a topic that is not granted passes": [
        ("return *topic < 0 ? DIFFERS : WHOLE;", "*topic = *topic < 0 ? 0 : *topic; return WHOLE;")
    ],
    "a batch outside of its transaction passes": [("if (grant->is_transactional && ", "if (0 && ")],
    "an old batch passes": [("batch[MAGIC_AT] != 2 || ", "")],
    "two batches of a partition pass as one": [
        ("read_u32(batch + BATCH_LENGTH_AT) != length - LENGTH_OVERHEAD", "0")
    ],
    "more batches pass than are counted": [
        ("produce->batches + partitions > MOST_BATCHES", "produce->batches + partitions > MOST_BATCHES + 1")
    ],
    "tags of a partition pass": [
        (
            "            if (frame[at++])\n                return DIFFERS;\n        }",
            "            at++;\n        }",
        )
    ],
    "tags of the request pass": [("return frame[at] ? DIFFERS : WHOLE;", "return WHOLE;")],
    "a request of two batches passes from its beginning on": [("topics == 1 && partitions == 1", "1")],
    "a request is counted twice": [
        ("core->counts.produce_requests++;", "core->counts.produce_requests += 2;")
    ],
    "a request is counted at its first byte": [
        (
            "        core->request_left = SIZE_PREFIX_BYTES + size;",
            "        core->request_left = SIZE_PREFIX_BYTES + size; core->counts.records += produce->records;",
        ),
        ("    core->counts.records += produce->records;\n    core->counts.last", "    core->counts.last"),
    ],
    "a written partition is forgotten": [
        ("|= UINT64_C(1) << partition % 64;", "|= UINT64_C(1) << partition % 63;")
    ],
    "a Produce is not in flight": [("    if (grant->acks)\n", "    if (0)\n")],
    "a Produce without answer is in flight": [("    if (grant->acks)\n", "    if (1)\n")],
    "another request is not in flight": [
        (
            "    put_in_flight(core, read_u32(frame + 4), ",
            "    if (version != 4) put_in_flight(core, read_u32(frame + 4), ",
        )
    ],
    "more are in flight than are kept": [("core->count == MOST_IN_FLIGHT", "0")],
    "a gateway topic is named": [("if (apis->is_guarded[api_key] && ", "if (0 && ")],
    "a request passes that Python asked for": [("apis->passing[api_key][version] == ASK", "0")],
    "an answer to another request passes": [
        ("core->in_flight[core->at].correlation_id != correlation_id", "0")
    ],
    "an error passes": [("if (answer[at + 4] || answer[at + 5])", "if (answer[at + 4])")],
    "a throttle passes": [
        ("{1};", "{1, 0, 0, 0, 0, 0, 0, 9, 0};"),
        ("memcmp(answer + size - sizeof QUIET_END, QUIET_END, sizeof QUIET_END) != 0", "0"),
    ],
    "a plain answer stays in flight": [
        ("        finish_answer(core);\n        return MORE;", "        return MORE;")
    ],
    "addresses pass": [("(core->answer_left > 1 || (at < bytes && buf[at]))", "0")],
    "a unit that is cut passes": [
        (
            "        *walked = (size_t)(cursor.at - buf);\n    }",
            "    }\n    *walked = (size_t)(cursor.at - buf);",
        ),
        ("        if (reading == CUT)\n", "        if (reading == CUT && !walked)\n"),
    ],
    "aborted transactions have no tags": [
        (
            "        skip(cursor, 8 + 8);\n        break;",
            "        skip(cursor, 8 + 8 + 1);\n        return 0;",
        )
    ],
}
"""Each breaks a rule of the core, and has to be noticed."""


@pytest.mark.parametrize("breach", MUTANTS)
def test_a_broken_core_is_noticed(breach: str, tmp_path: Path) -> None:
    broken = load(build(tmp_path, *MUTANTS[breach]))
    with pytest.raises(AssertionError):
        fuzz(broken, Random(40), 5_000)


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    library = build(tmp_path, flags=SANITIZERS)
    found = subprocess.run(
        [compiler() or "", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    seconds = 300 if THOROUGH else 5
    command = [sys.executable, "-m", "tests.support.core_fuzz", str(library), str(seconds), "1000000"]
    environment = {**os.environ, "LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4_000:]
