"""Responses that contain broker addresses, and the rewriting of each.

    Metadata              all versions     brokers                      (metadata.py)
    FindCoordinator       0-6              one coordinator, from 4 an array (KIP-699)
    DescribeCluster       0-2              brokers
    DescribeConfigs       0-4              broker settings that hold addresses: null
    Produce               10-13            node endpoints (KIP-951)     (produce_answers.py)
    ShareAcknowledge      1-2              node endpoints (KIP-932)
    Fetch, ShareFetch                      rewritten as they stream     (fetch.py)
    DescribeQuorum        2                controller listeners (KIP-853), emptied

Every other byte is left unchanged. The hosts of ACLs and group members and Streams user endpoints (KIP-1071)
are not broker addresses.
"""

from collections.abc import Callable, Iterator

from pidgate.protocol import metadata, produce, produce_answers
from pidgate.protocol.errors import UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, Translate, array_count, framed
from pidgate.protocol.headers import response_header_version
from pidgate.protocol.splice import Splice, translate_endpoint, translate_node_endpoints
from pidgate.protocol.work import Steps, Walk

Walker = Callable[[Reader, int, Splice, Translate], Iterator[None]]
"""Walker over a response body that yields after each element."""

FIND_COORDINATOR = 10
DESCRIBE_CONFIGS = 32
DESCRIBE_QUORUM = 55
DESCRIBE_CLUSTER = 60
SHARE_ACKNOWLEDGE = 79

_NO_LISTENERS = array_count(0, flexible=True)

_BROKER_RESOURCE = 4  # org.apache.kafka.common.config.ConfigResource.Type.BROKER

_ADDRESS_SETTINGS = frozenset(
    {
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "zookeeper.connect",
    }
)
_ADDRESS_SUFFIX = "bootstrap.servers"  # clients inside the broker: remote log metadata, metrics reporters


def shows_addresses(api_key: int, api_version: int) -> bool:
    """Return whether responses of this API must pass through `rewrite` before they reach a client.

    Also true for versions newer than `rewrite` supports. It raises for those, so no address leaks.
    """
    first = _FIRST_TO_SHOW.get(api_key)
    return first is not None and api_version >= first


def rewrite(api_key: int, api_version: int, buf: Buffer, start: int, end: int, translate: Translate) -> bytes:
    """Return the response buf[start:end] (header included), framed, with every broker address translated.

    Raises MalformedFrame, and UnsupportedVersion for versions without a walker.
    """
    if api_key == metadata.METADATA:
        return metadata.splice(buf, start, end, api_version, translate)
    if api_key == produce.PRODUCE:
        rewritten = produce_answers.rewrite_response(buf, start, end, api_version, translate)
        return framed(buf[start:end]) if rewritten is None else rewritten
    walk = rewriting(api_key, api_version, buf, start, end, translate)
    return walk.finish() or b""


def rewriting(
    api_key: int, api_version: int, buf: Buffer, start: int, end: int, translate: Translate
) -> Walk:
    """Return the Walk that does the work of `rewrite` in turns, for responses of any length.

    buf must not change until the Walk is finished. Raises UnsupportedVersion for versions without a walker;
    the Walk raises MalformedFrame.
    """
    known = _WALKERS.get(api_key)
    if known is None or not known[0] <= api_version <= known[1]:
        raise UnsupportedVersion(api_key, api_version)
    return Walk(_rewriting(known[2], api_key, api_version, buf, start, end, translate))


def _rewriting(
    walker: Walker, api_key: int, version: int, buf: Buffer, start: int, end: int, translate: Translate
) -> Steps:
    answer = Reader(buf, start, end, flexible=response_header_version(api_key, version) == 1)
    splice = Splice(buf, start, end)
    answer.skip(4)
    answer.skip_tags()
    yield from walker(answer, version, splice, translate)
    answer.skip_tags()
    answer.finish()
    return splice.framed()


def _find_coordinator(answer: Reader, version: int, splice: Splice, translate: Translate) -> Iterator[None]:
    if version >= 1:
        answer.skip(4)
    if version < 4:
        answer.skip(2)
        if version >= 1:
            answer.skip_string()
        translate_endpoint(answer, splice, translate)
        return
    for _ in range(answer.count(14)):
        answer.skip_string()
        translate_endpoint(answer, splice, translate)
        answer.skip(2)
        answer.skip_string()
        answer.skip_tags()
        yield


def _describe_cluster(answer: Reader, version: int, splice: Splice, translate: Translate) -> Iterator[None]:
    answer.skip(6)
    answer.skip_string()
    if version >= 1:
        answer.skip(1)
    answer.skip_string()
    answer.skip(4)
    for _ in range(answer.count(11)):
        translate_endpoint(answer, splice, translate)
        answer.skip_string()
        if version >= 2:
            answer.skip(1)
        answer.skip_tags()
        yield
    answer.skip(4)


def _share_acknowledge(answer: Reader, version: int, splice: Splice, translate: Translate) -> Iterator[None]:
    answer.skip(6)
    answer.skip_string()
    if version >= 2:
        answer.skip(4)
    for _ in range(answer.count(18)):
        answer.skip(16)
        for _ in range(answer.count(17)):
            answer.skip(6)
            answer.skip_string()
            answer.skip(8)
            answer.skip_tags()  # tags of the current leader, a struct of its own
            answer.skip_tags()
            yield
        answer.skip_tags()
        yield
    yield from translate_node_endpoints(answer, splice, translate)


def _describe_configs(answer: Reader, version: int, splice: Splice, _translate: Translate) -> Iterator[None]:
    # Nulled rather than translated. A value may list listeners that are unreachable for our clients, and a
    # tool that writes values back would store the gateway's address in the broker.
    answer.skip(4)
    for _ in range(answer.count(7)):
        answer.skip(2)
        answer.skip_string()
        of_broker = answer.i8() == _BROKER_RESOURCE
        answer.skip_string()
        for _ in range(answer.count(7)):
            yield from _setting(answer, version, splice, of_broker=of_broker)
            answer.skip_tags()
        answer.skip_tags()
        yield


def _describe_quorum(answer: Reader, _version: int, splice: Splice, _translate: Translate) -> Iterator[None]:
    # Emptied rather than translated: these are controllers, and no gateway port leads to a controller.
    answer.skip(2)
    answer.skip_string()
    for _ in range(answer.count(3)):
        answer.skip_string()
        for _ in range(answer.count(26)):
            answer.skip(6)
            answer.skip_string()
            answer.skip(16)  # leader and its epoch, high watermark
            for _ in range(2):  # voters, observers
                for _ in range(answer.count(45)):
                    answer.skip(44)
                    answer.skip_tags()
                    yield
            answer.skip_tags()
            yield
        answer.skip_tags()
        yield
    for _ in range(answer.count(6)):
        answer.skip(4)
        at = answer.pos
        for _ in range(answer.count(5)):
            answer.skip_string()
            answer.skip_string()
            answer.skip(2)
            answer.skip_tags()
            yield
        splice.replace(at, answer.pos, _NO_LISTENERS)
        answer.skip_tags()
        yield


def _setting(answer: Reader, version: int, splice: Splice, *, of_broker: bool) -> Iterator[None]:
    yield
    _value(answer, splice, of_broker=of_broker)
    answer.skip(3)  # read only, source (version 0: is default), sensitive
    if version >= 1:
        for _ in range(answer.count(4)):
            _value(answer, splice, of_broker=of_broker)
            answer.skip(1)
            answer.skip_tags()
            yield
    if version >= 3:
        answer.skip(1)
        answer.skip_string()


def _value(answer: Reader, splice: Splice, *, of_broker: bool) -> None:
    """Read the name and value of a setting or a synonym."""
    name = answer.string()
    at = answer.pos
    answer.skip_string()
    if of_broker and _holds_address(name):
        splice.replace(at, answer.pos, b"\x00" if answer.flexible else b"\xff\xff")


def _holds_address(name: str) -> bool:
    return name in _ADDRESS_SETTINGS or name.endswith(_ADDRESS_SUFFIX)


_WALKERS: dict[int, tuple[int, int, Walker]] = {
    FIND_COORDINATOR: (0, 6, _find_coordinator),
    DESCRIBE_CONFIGS: (0, 4, _describe_configs),
    DESCRIBE_QUORUM: (2, 2, _describe_quorum),
    DESCRIBE_CLUSTER: (0, 2, _describe_cluster),
    SHARE_ACKNOWLEDGE: (1, 2, _share_acknowledge),
}
"""First and last supported version, and the walker."""

_FIRST_TO_SHOW = {
    metadata.METADATA: 0,
    produce.PRODUCE: produce_answers.FIRST_WITH_ENDPOINTS,
    **dict.fromkeys(_WALKERS, 0),
    DESCRIBE_QUORUM: 2,
}
