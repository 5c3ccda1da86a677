"""Events of every type with any values that their types allow (hypothesis), and one plain decision."""

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from pidgate.events.definitions import EVENT_TYPES, DecisionEvent, Event

_SIMPLE: dict[object, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    # With quotes, braces, control characters and what takes two of UTF-16: a client id may hold anything.
    str: st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from("{}\"'\\\n\x00\U0001f600"), max_size=12
    ),
    bool: st.booleans(),
    float: st.floats(-1e290, 1e290),
    NoneType: st.none(),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return st.sampled_from(inner)
    if get_origin(hint) is list:
        return st.lists(_values(inner[0]), max_size=4)
    if is_dataclass(hint):
        return _made(hint)
    return st.one_of([_values(option) for option in inner])


def _made(made: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(made)
    required = {field.name for field in fields(made) if field.default is MISSING}
    values = {field.name: _values(hints[field.name]) for field in fields(made)}
    return st.fixed_dictionaries(
        {name: values[name] for name in values if name in required},
        optional={name: values[name] for name in values if name not in required},
    ).map(lambda given: made(**given))


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    return _made(kind)


any_event: st.SearchStrategy[Event] = st.one_of([events_of(kind) for kind in EVENT_TYPES.values()])


def a_decision(**changes: Any) -> DecisionEvent:
    """An ordinary admission."""
    given: dict[str, Any] = {
        "cluster": "5L6g3nShT-eMCtK--X86sw",
        "gateway_id": "gw-1",
        "incarnation": "a1b2c3",
        "seq": 7,
        "wall_time_ms": 1_763_733_600_000,
        "decision_time_ms": 123_456,
        "user": "etl",
        "client_id": "producer-1",
        "address": "10.0.3.7",
        "producer_id": 4711,
        "epoch": 0,
        "transactional": False,
        "topic": "orders",
        "partition": 3,
        "base_sequence": 0,
        "request_partitions": 1,
        "decision": "admit",
        "reason": "first_seen",
        "tokens_before": 360_000_000_000,
        "tokens_after": 356_400_000_000,
        "quota_version": 1,
        "applied_offsets": [10, 0, 12],
    }
    return DecisionEvent(**(given | changes))
