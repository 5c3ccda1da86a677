"""The generated parts of docs/explanation/architecture.md: rooms, imports, states of a connection, a recorded Produce.

`python -m tests.support.architecture_page` writes them anew (`make docs`); a test holds the page to them.
"""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final

from pidgate.gateway.proxy import connection_state
from tests.support.import_graph import FOLDERS, PACKAGE, ROOT, drawing, room_of, sources

PAGE: Final = ROOT / "docs" / "explanation" / "architecture.md"


def first_line(path: str) -> str:
    """Return the first line of a file's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
    return text.split("\n", 1)[0].removesuffix(" PURE.").rstrip(".")


def map_of_rooms() -> str:
    """Return a table of the rooms: what each is for, by its own docstring."""
    lines = ["| room | what it holds |", "| --- | --- |"]
    for room in sorted({room_of(path) for path in sources(*FOLDERS)}):
        lines.append(f"| `{room}` | {first_line(f'{PACKAGE}/{room}/__init__.py')} |")
    return "\n".join(lines)


def rooms_drawn() -> str:
    """Return the flowchart of who imports whom."""
    return f"```mermaid\n{drawing().rstrip()}\n```"


def states_drawn() -> str:
    """Return the flowchart of a connection's states."""
    return f"```mermaid\n{connection_state.diagram().rstrip()}\n```"


def walk_recorded() -> str:
    """Return a table of what each step made of three Produce requests; the first is one that librdkafka sent."""
    from pidgate.protocol.headers import peek_request
    from pidgate.protocol.produce import walk
    from pidgate.quota.admission import Admission
    from pidgate.quota.decisions import Client, Forward, Refuse
    from pidgate.quota.settings import Mode, Quotas, UserQuota
    from tests.support import raw
    from tests.support.frames import framed, produce_request, record_batch
    from tests.support.produce_frames import CLIENT_FRAMES
    from tests.support.talk import Talk

    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(1))
    talk = Talk(Admission(quotas, lambda: 1, 0), Client("alice", "", "10.0.0.1", 1))
    verdicts: list[Forward | Refuse] = []
    judge = talk.at.admission.judge
    talk.at.admission.judge = lambda *seen, **named: verdicts.append(judge(*seen, **named)) or verdicts[-1]  # type: ignore
    token = quotas.producer_ids.window_ms * 1_000
    lines = ["| step | code | recorded |", "| --- | --- | --- |"]

    def step(name: str, code: str, recorded: str) -> None:
        lines.append(f"| {name} | `{code}` | {recorded} |")

    def judged(number: int) -> str:
        (decision,) = verdicts[number].decisions
        assert decision.tokens_before is not None
        assert decision.tokens_after is not None
        return (
            f"{type(verdicts[number]).__name__}: {decision.reason}, tokens {decision.tokens_before / token:.2f} to "
            f"{decision.tokens_after / token:.2f}"
        )

    def received(frame: bytes, now_ms: int) -> str:
        actions = talk.session.receive(frame, 4, len(frame), now_ms)
        talk.perform(actions)
        return ", ".join(getattr(action, "name", type(action).__name__) for action in actions)

    first = framed(CLIENT_FRAMES["librdkafka 2.16.1, version 10"])
    head = peek_request(first, 4, len(first))
    acks, transactional, ((producer_id, epoch, sequence, topic, partition),) = walk(first, head)
    step("read", "ReceiveBuffer", f"a frame of {len(first)} bytes, `{first[:24].hex(' ', 4)}...`")
    step(
        "header",
        "peek_request",
        f"API {head.api_key} (Produce) version {head.api_version}, correlation id {head.correlation_id}, client id "
        f"{head.client_id}",
    )
    step(
        "walk",
        "produce.walk",
        f"acks {acks}, {'' if transactional else 'not '}transactional; producer id {producer_id}, epoch {epoch}, base "
        f"sequence {sequence}, {topic.decode()}-{partition}",
    )
    actions = received(first, 0)
    step("judge, at 0 s", "Admission.judge", judged(0))
    step("act", "Session.receive", f"actions: {actions or 'none'}, so the frame is forwarded unchanged")
    step("in flight", "InFlightRequests", f"correlation id {talk.expect(head.correlation_id).correlation_id}")
    for number, now_ms in ((1, 60_000), (2, 61_000)):
        batch = record_batch(producer_id + number)
        frame = framed(
            produce_request(9, [("orders", [(0, batch)])], correlation_id=head.correlation_id + number)
        )
        actions = received(frame, now_ms)
        step(f"judge id {producer_id + number}, at {now_ms // 1_000} s", "Admission.judge", judged(number))
    step("act", "Session.receive", f"actions: {actions}")
    assert not talk.out
    for correlation_id in (head.correlation_id, head.correlation_id + 1):
        talk.expect(correlation_id)
        talk.answered()
    step("answers", "Session.answer_passed", "the refusal leaves after the broker's two answers")
    answer = raw.decoded(0, 9, talk.out[0][4:])
    (outcome,) = answer["responses"][0]["partition_responses"]
    step(
        "refusal",
        "produce_answers.refusal",
        f"error {outcome['error_code']}, base offset {outcome['base_offset']}, throttle_time_ms "
        f"{answer['throttle_time_ms']}, message `{outcome['error_message']}`",
    )
    step(
        "mute",
        "WakeAt",
        f"no request is forwarded on this connection before {talk.muted_until_ms / 1_000:.0f} s",
    )
    return "\n".join(lines)


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "rooms": rooms_drawn,
    "map": map_of_rooms,
    "states": states_drawn,
    "walk": walk_recorded,
}


def generated(page: str, parts: Mapping[str, Callable[[], str]] = PARTS) -> str:
    """Return a page with every part between its marks drawn anew. Raises KeyError for an unknown mark."""

    def anew(match: re.Match[str]) -> str:
        return f"{match[1]}\n{parts[match[2]]()}\n{match[3]}"

    return re.sub(r"(<!-- from the code: (\w+) -->)\n.*?\n(<!-- end -->)", anew, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8")), "utf-8")
