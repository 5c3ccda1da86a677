"""TLS between a socket and a reader: every byte once and in order, however both sides dawdle; and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from pidgate.gateway.proxy import tls_inbox, tls_transport
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, BufferBudget, Purpose
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES, Data, Pause, Reader
from pidgate.gateway.proxy.receive_buffer import READ_VIEW
from pidgate.gateway.proxy.tls_inbox import TlsInbox
from pidgate.gateway.proxy.tls_transport import TlsTransport
from tests.support.key_updates import key_updates, pad_records
from tests.support.payer import Payer
from tests.support.rules import rule
from tools.sandbox.certificates import Authority


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of its client."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    pair = authority.issue("server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.cert_file, pair.key_file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(authority.ca_file)
    return server, client


class Socket:
    """The socket's transport, as paper_transport's: written is what leaves, the test takes it when it likes."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.reading, self.closing, self.aborted = True, False, False
        self.high = 1 << 30
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        was_full = len(self.written) > self.high
        self.written += data
        if not was_full and len(self.written) > self.high:
            self.protocol.pause_writing()

    def take(self, most: int) -> bytes:
        was_full = len(self.written) > self.high
        taken = bytes(self.written[:most])
        del self.written[:most]
        if was_full and len(self.written) <= self.high:
            self.protocol.resume_writing()
        return taken

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Recording(Reader):
    """A reader that keeps everything, and pauses now and then in the middle of it."""

    def __init__(self, budget: BufferBudget, loop: asyncio.AbstractEventLoop, dice: random.Random) -> None:
        super().__init__(budget, loop)
        self._budget = budget
        self.got = bytearray()
        self.dice = dice
        self.pauses = False
        self.is_full = self.ended = False
        self.stays_open = False
        self.largest_read = 0

    def data_received(self, data: bytes) -> None:
        self._take(data)
        if self.dice.random() < 0.2:
            self.socket.read_large()

    def next_buffer(self) -> memoryview:
        return READ_VIEW[:SCARCE_READ_BYTES] if self._budget.is_full else READ_VIEW

    def buffer_filled(self, nbytes: int) -> None:
        self._take(bytes(READ_VIEW[:nbytes]))
        self.socket.turn_back(nbytes)

    def _take(self, data: bytes) -> None:
        assert not self.socket.gate.reasons, "nothing arrives while it has paused"
        self.largest_read = max(self.largest_read, len(data))
        self.got += data
        if self.pauses and self.dice.random() < 0.4:
            self.socket.gate.pause(Pause.PEER_BUSY)

    def take_rest(self, rest: bytes | bytearray) -> None: ...

    def write(self, data: Data) -> None:
        self.socket.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None:
        assert not self.is_full
        self.is_full = True

    def resume_writing(self) -> None:
        assert self.is_full
        self.is_full = False


class Server(TlsTransport):
    """The transport as it is, the server's side."""

    failure: Exception | None = None

    def began(self) -> None:
        self._reader.socket.opened(cast(asyncio.BaseTransport, self.as_transport()))

    def secured(self) -> None: ...

    def not_secured(self, error: Exception) -> None:
        self.failure = error
        self.close()

    def lost(self, error: Exception | None) -> None: ...


class Pair:
    """A server's transport and a client's library, with a wire between them that cuts where the dice fall."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], seed: int = 1) -> None:
        self.dice = random.Random(seed)
        self.loop = asyncio.new_event_loop()
        self.budget = BufferBudget(1 << 20)
        self.share = BudgetShare(self.budget, Payer("alice"))
        self.reader = Recording(self.budget, self.loop, self.dice)
        self.server = Server(
            self.reader, contexts[0], self.loop, self.budget, self.share, Purpose.ENCRYPTED_REQUESTS, None
        )
        self.socket = Socket()
        self.socket.protocol = self.server
        self.client_in, self.client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = contexts[1].wrap_bio(self.client_in, self.client_out, server_hostname="localhost")
        self.client_got = bytearray()
        self.client_saw_end = False
        self.server.connection_made(cast(asyncio.BaseTransport, self.socket))

    def turn(self) -> None:
        """One turn of the event loop."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def to_server(self, most: int = 1 << 30) -> None:
        """Bytes of the client arrive while the socket is read."""
        while self.client_out.pending and self.socket.reading and not self.socket.closing:
            view = self.server.get_buffer(-1)
            nbytes = min(most, len(view), self.client_out.pending)
            view[:nbytes] = self.client_out.read(nbytes)
            self.server.buffer_updated(nbytes)

    def to_client(self, most: int = 1 << 30) -> None:
        self.client_in.write(self.socket.take(most))
        while True:
            try:
                data = self.client.read(65_536)
            except ssl.SSLWantReadError:
                return
            if not data:
                self.client_saw_end = True
                return
            self.client_got += data

    def handshake(self, most: int = 1 << 30) -> None:
        for _ in range(10_000):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.to_server(most)
                self.client_in.write(self.socket.take(most))
            else:
                self.to_server()
                return
        raise AssertionError("no handshake")


Made = Callable[[int], Pair]


@pytest.fixture
def made(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Made]:
    pairs = list[Pair]()

    def make(seed: int) -> Pair:
        pairs.append(Pair(contexts, seed))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.loop.close()


@pytest.fixture
def pair(made: Made) -> Pair:
    return made(1)


def test_a_ticket_leaves_with_the_first_answer(pair: Pair) -> None:
    pair.server._tls.context.num_tickets = 1
    pair.handshake()
    assert not pair.socket.written, "the client of TLS 1.3 does not wait for it"
    pair.server.write(b"answer")
    pair.to_client()
    assert pair.client_got == b"answer"
    assert pair.client.session is not None
    assert pair.client.session.has_ticket


def always_pausing(pair: Pair) -> None:
    pair.reader.pauses = True
    pair.reader.dice = cast(random.Random, type("Always", (), {"random": staticmethod(lambda: 0.0)})())


@pytest.mark.parametrize("seed", range(12))
def test_every_byte_arrives_once_however_it_is_cut_and_whenever_reading_pauses(made: Made, seed: int) -> None:
    pair = made(seed)
    pair.handshake(most=pair.dice.choice([1, 7, 1 << 20]))
    pair.reader.pauses = True
    sent = bytearray()
    for _ in range(40):
        data = pair.dice.randbytes(pair.dice.choice([1, 100, 5_000, 70_000, 600_000]))
        sent += data
        pair.client.write(data)
        for _ in range(pair.dice.randint(0, 6)):
            pair.to_server(pair.dice.choice([1_000, 20_000, 1 << 20]))
            pair.turn()
            if pair.dice.random() < 0.7:
                pair.reader.socket.gate.resume(Pause.PEER_BUSY)
    while len(pair.reader.got) < len(sent):
        before = len(pair.reader.got)
        pair.reader.socket.gate.resume(Pause.PEER_BUSY)
        pair.turn()
        pair.to_server()
        pair.turn()
        assert len(pair.reader.got) > before or pair.reader.socket.gate.reasons, "it has come to a halt"
    assert pair.reader.got == sent
    assert pair.reader.largest_read <= len(READ_VIEW)
    pair.reader.socket.gate.resume(Pause.PEER_BUSY)
    pair.turn()
    assert pair.share.total_bytes == 0


def test_what_waits_for_a_reader_that_pauses_is_counted_and_given_back(pair: Pair) -> None:
    pair.handshake()
    always_pausing(pair)
    pair.client.write(bytes(250_000))
    pair.to_server()
    held = pair.share.held(Purpose.ENCRYPTED_REQUESTS)
    assert 150_000 < held <= READ_BUFFER_BYTES
    pair.server.connection_lost(None)
    assert pair.share.total_bytes == 0


def test_once_the_budget_is_spent_reads_are_small(pair: Pair) -> None:
    pair.handshake()
    pair.budget.is_full = True
    assert len(pair.server.get_buffer(-1)) == SCARCE_READ_BYTES
    pair.client.write(bytes(100_000))
    pair.to_server()
    pair.reader.socket.read_large()
    assert len(pair.reader.got) == 100_000


@pytest.mark.parametrize("seed", range(4))
def test_all_that_is_written_leaves_in_order_as_the_peer_takes_it(made: Made, seed: int) -> None:
    pair = made(seed)
    pair.handshake()
    pair.socket.high = 300_000
    sent = bytearray()
    most_waiting = 0
    for size in [10, 3_000_000, 100, 40_000, 2_000_000, 5]:
        data = pair.dice.randbytes(size)
        sent += data
        pair.reader.write(bytearray(data))
        most_waiting = max(most_waiting, len(pair.socket.written))
        if pair.dice.random() < 0.5:
            pair.turn()
            pair.to_client(200_000)
    assert pair.reader.is_full
    assert most_waiting < 300_000 + 2 * tls_inbox.SLICE_BYTES, "no more is encrypted than the socket takes"
    # A record that the client has in part is no byte to it yet.
    assert pair.server.get_write_buffer_size() > len(sent) - len(pair.client_got) - 32_768
    pair.server.close()
    for _ in range(10_000):
        if pair.socket.closing and not pair.socket.written:
            break
        pair.to_client(100_000)
        pair.turn()
    assert pair.client_got == sent
    assert pair.client_saw_end


def test_records_count_for_the_account_and_wait_for_its_turn(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.handshake()
    spent: list[int] = []
    monkeypatch.setattr(Recording, "spend", lambda _, work: spent.append(work))
    pair.client.write(b"a")
    pair.to_server()
    assert spent == [1]
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(Recording, "has_time", lambda _: not waiting)
    monkeypatch.setattr(Recording, "await_turn", lambda _, who, go_on: waiting.append(go_on))
    waiting.append(lambda: None)
    pair.client.write(b"b")
    pair.to_server()
    assert pair.reader.got == b"a"
    assert not pair.socket.reading
    go_on = waiting.pop()
    waiting.clear()
    go_on()
    assert pair.reader.got == b"ab"
    assert pair.socket.reading


@pytest.mark.parametrize("reads_large", [False, True])
def test_records_of_one_byte_each_take_their_turns(pair: Pair, reads_large: bool) -> None:
    pair.handshake()
    if reads_large:
        pair.reader.socket.read_large()
    sent = pair.dice.randbytes(5_000)
    for byte in sent:
        pair.client.write(bytes([byte]))
    pair.to_server()
    assert len(pair.reader.got) <= tls_inbox.MOST_READS_PER_TURN
    assert not pair.socket.reading, "nothing more is read meanwhile"
    for _ in range(5):
        pair.turn()
        pair.to_server()
    assert pair.reader.got == sent
    assert pair.socket.reading
    assert pair.share.total_bytes == 0


def with_the_library(pair: Pair, most: int = 1 << 30) -> int:
    """How many of the client's bytes the server's library is given in one turn."""
    sent_bytes = pair.client_out.pending
    pair.to_server(most)
    return sent_bytes - pair.client_out.pending - pair.share.held(Purpose.ENCRYPTED_REQUESTS)


def key_update_bytes(pair: Pair) -> int:
    """The size of a record that has nothing but a KeyUpdate; the server has one more of it."""
    key_updates(pair.client, 1)
    size = pair.client_out.pending
    pair.to_server()
    pair.client.write(b"-")
    pair.to_server()
    return size


@rule("TLS records without data end the connection before they cost a turn.", "memory")
@pytest.mark.parametrize("padded_to", [0, 1024, 4096])
@pytest.mark.parametrize("reads_large", [False, True])
@pytest.mark.parametrize("most", [1 << 30, 10_000, 100, 7])
def test_records_without_data_end_the_connection_before_they_cost_a_turn(
    pair: Pair, reads_large: bool, padded_to: int, most: int
) -> None:
    pair.handshake()
    if reads_large:
        pair.reader.socket.read_large()
    if padded_to:
        pad_records(pair.client, padded_to)
    record_bytes = key_update_bytes(pair)
    assert record_bytes >= padded_to
    key_updates(pair.client, 2_000)
    sent_bytes = pair.client_out.pending
    while not pair.socket.closing:
        assert pair.client_out.pending, "it was taken to the end"
        with_the_library(pair, most)
        pair.turn()
    given_bytes = sent_bytes - pair.client_out.pending - pair.share.held(Purpose.ENCRYPTED_REQUESTS)
    assert pair.socket.aborted
    assert isinstance(pair.server._error, ssl.SSLError)
    assert pair.server._error.reason == "TOO_MANY_RECORDS_WITHOUT_DATA"
    most_in_a_slice = tls_inbox.SLICE_BYTES // record_bytes if padded_to else 1
    assert given_bytes // record_bytes <= tls_inbox.MOST_DATALESS_RECORDS + most_in_a_slice


@pytest.mark.parametrize("reads_large", [False, True])
def test_records_without_data_between_others_take_their_turns(pair: Pair, reads_large: bool) -> None:
    pair.handshake()
    if reads_large:
        pair.reader.socket.read_large()
    before = len(pair.reader.got)
    for _ in range(100):
        key_updates(pair.client, tls_inbox.MOST_DATALESS_RECORDS)
        pair.client.write(b"x")
    turns = 0
    while len(pair.reader.got) < before + 100:
        got = len(pair.reader.got)
        pair.to_server()
        pair.turn()
        turns += 1
        assert turns < 200, "it has come to a halt"
        records = (len(pair.reader.got) - got + 1) * (tls_inbox.MOST_DATALESS_RECORDS + 1)
        assert records < 2 * (tls_inbox.MOST_READS_PER_TURN // tls_inbox.READS_PER_DATALESS) + 100
    assert not pair.socket.closing
    assert turns > 20


def test_large_records_are_fed_in_slices(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What bulk costs: as many calls as its bytes need, and not one for each record."""
    calls = list[int]()
    feed = TlsInbox.feed

    def counting(inbox: TlsInbox) -> bool:
        calls.append(1)
        return feed(inbox)

    monkeypatch.setattr(TlsInbox, "feed", counting)
    pair.handshake()
    pair.reader.socket.read_large()
    calls.clear()
    for _ in range(100):
        pair.client.write(bytes(2_000))
    pair.to_server()
    assert len(pair.reader.got) == 200_000
    assert len(calls) <= 2 * (200_000 // tls_inbox.SLICE_BYTES) + 4


def test_what_comes_with_the_end_of_the_handshake_is_cut_into_records(pair: Pair) -> None:
    """The client's last message of the handshake, and all that it says next, in one read."""
    with contextlib.suppress(ssl.SSLWantReadError):
        pair.client.do_handshake()
    pair.to_server()
    pair.client_in.write(pair.socket.take(1 << 30))
    pair.client.do_handshake()
    pair.client.write(b"the first request")
    key_updates(pair.client, 1_000)
    sent_bytes = pair.client_out.pending
    given_bytes = with_the_library(pair)
    assert pair.socket.aborted
    assert given_bytes < sent_bytes // 5


def test_a_turn_encrypts_so_much_and_no_more(pair: Pair) -> None:
    pair.handshake()
    pair.reader.write(bytes(5 * tls_transport.TURN_BYTES))
    assert len(pair.socket.written) < 1.1 * tls_transport.TURN_BYTES
    assert pair.reader.is_full
    for _ in range(6):
        pair.turn()
    assert len(pair.socket.written) > 5 * tls_transport.TURN_BYTES
    assert not pair.reader.is_full


@pytest.mark.parametrize("by", ["alert", "socket"])
def test_a_client_that_ends_may_still_get_its_answers(pair: Pair, by: str) -> None:
    pair.handshake()
    pair.reader.stays_open = True
    pair.client.write(b"the last request")
    if by == "alert":
        with pytest.raises(ssl.SSLWantReadError):
            pair.client.unwrap()
    pair.to_server()
    assert pair.server.eof_received()
    assert bytes(pair.reader.got) == b"the last request"
    assert pair.reader.ended
    pair.reader.write(b"its answer")
    pair.server.close()
    assert pair.socket.closing
    if by == "socket":
        pair.to_client()
        assert pair.client_got == b"its answer"


def test_an_end_closes_when_nothing_is_left_to_say(pair: Pair) -> None:
    pair.handshake()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.to_server()
    assert pair.reader.ended
    assert pair.socket.closing


def test_a_close_waits_for_nobody(pair: Pair) -> None:
    pair.handshake()
    pair.server.close()
    assert pair.socket.closing
    assert pair.server.is_closing()
    pair.to_client()
    assert pair.client_saw_end


def test_what_is_no_tls_ends_the_handshake_with_an_alert(pair: Pair) -> None:
    view = pair.server.get_buffer(-1)
    view[:20] = b"GET / HTTP/1.1\r\n\r\n\r\n"
    pair.server.buffer_updated(20)
    assert isinstance(pair.server.failure, ssl.SSLError)
    assert pair.socket.closing


def test_a_record_that_was_tampered_with_cuts_the_connection_off(pair: Pair) -> None:
    pair.handshake()
    pair.client.write(b"x" * 100)
    wire = bytearray(pair.client_out.read())
    wire[50] ^= 1
    view = pair.server.get_buffer(-1)
    view[: len(wire)] = wire
    pair.server.buffer_updated(len(wire))
    assert pair.socket.aborted
    assert pair.reader.got == b""


@rule("Bytes reach a slow peer once and in order.", "order")
def test_what_waits_is_not_in_the_shared_buffer(made: Made) -> None:
    """In the next turn another connection reads into the buffer."""
    one, other = made(1), made(2)
    for pair in (one, other):
        pair.handshake()
    always_pausing(one)
    one.client.write(bytes(200_000))
    one.to_server()
    other.client.write(b"x" * 200_000)
    other.to_server()
    one.reader.pauses = False
    one.reader.socket.gate.resume(Pause.PEER_BUSY)
    one.turn()
    assert one.reader.got == bytes(200_000)
