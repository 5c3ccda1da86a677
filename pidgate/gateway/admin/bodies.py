"""Request bodies of the admin address, strictly validated: quota changes and commands."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from pidgate import units
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target
from pidgate.quota.settings import Mode, rate_milli
from pidgate.quota.users import GRACE_TIMES_RATE

MOST_CHANGES: Final = 1_000
HIGHEST_RATE: Final = 10**9
LONGEST_FOR_MS: Final = 366 * 86_400_000
_LONGEST_NAME: Final = 1_000
_Model = TypeVar("_Model", bound=BaseModel)


class BodyInvalid(Exception):
    """A body is invalid; `problems` lists each place and error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def _rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number of ids per window; write for example 100 or 0.5")
    if value > HIGHEST_RATE:
        raise ValueError(f"{value} is too high; {HIGHEST_RATE:,} is the most, and remove means no limit")
    return units.rate(value)


def _duration(value: object) -> int:
    for_ms = units.duration_ms(value)
    if not 0 < for_ms <= LONGEST_FOR_MS:
        raise ValueError(f"{value} must be above 0 and at most {units.show_duration(LONGEST_FOR_MS)}")
    return for_ms


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable text")
    return text


Name = Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]
Words = Annotated[str, Field(max_length=_LONGEST_NAME), AfterValidator(_one_line)]


class _Posted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _PostedChange(_Posted):
    """A change. `for` makes it temporary with this duration; `temporary` resets the temporary one."""

    user: Name | None
    action: Literal["set", "remove", "reset"]
    temporary: bool = False
    note: Words = ""
    for_ms: Annotated[int, PlainValidator(_duration)] | None = Field(default=None, alias="for")
    setting: str
    value: float | str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.action == "set") != (self.value is not None):
            raise ValueError("set needs a value, remove and reset have none")
        if self.action != "set" and self.for_ms is not None:
            raise ValueError("for is only allowed with set")
        if self.action == "set" and self.temporary and self.for_ms is None:
            raise ValueError("a temporary change needs for, its duration: 2h")
        if self.action == "remove" and self.temporary:
            raise ValueError("a temporary change is reset, not removed")
        return self

    @property
    def target(self) -> Target:
        return Target(Setting(self.setting), self.user, self.temporary or self.for_ms is not None)


class RateChange(_PostedChange):
    """`user` null: the default user. `value`: ids, or producer states, per window."""

    setting: Literal["producer_ids_rate", "transactional_ids_rate", "producer_states_rate"]
    value: Annotated[float, PlainValidator(_rate)] | None = None

    @property
    def new_value(self) -> int | None:
        return None if self.value is None else rate_milli(self.value)


class ByteRateChange(_PostedChange):
    """`user` null: the default user. `value`: bytes per second of all clients of the user."""

    setting: Literal["producer_byte_rate", "consumer_byte_rate"]
    value: Annotated[float, Field(gt=0, le=1000 * HIGHEST_RATE, strict=False)] | None = None

    @property
    def new_value(self) -> int | None:
        return None if self.value is None else rate_milli(self.value)


class ModeChange(_PostedChange):
    """`user` null: every user, overriding their own modes."""

    setting: Literal["mode"]
    value: Literal["observe", "enforce"] | None = None

    @model_validator(mode="after")
    def _is_not_removed_from_all(self) -> Self:
        if self.user is None and self.action == "remove":
            raise ValueError("the mode of all users is set or reset, it cannot be removed")
        return self

    @property
    def new_value(self) -> Mode | None:
        return None if self.value is None else Mode(self.value)


class GraceChange(_PostedChange):
    """`user` null: the default user. `value`: windows of the rate that are admitted uncharged; 0 ends a grace."""

    setting: Literal["grace"]
    value: Annotated[float, Field(ge=0, le=GRACE_TIMES_RATE, strict=False)] | None = None

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.action == "remove" or (self.action == "set" and self.for_ms is None):
            raise ValueError("a grace has an end: set it with for, its duration, or reset it")
        return self

    @property
    def new_value(self) -> int | None:
        return None if self.value is None else rate_milli(self.value)


class PostedChanges(_Posted):
    """Changes applied together or not at all; other users see `set_by`. `only_check`: say what they would do."""

    changes: Annotated[
        tuple[
            Annotated[RateChange | ByteRateChange | ModeChange | GraceChange, Field(discriminator="setting")],
            ...,
        ],
        Field(min_length=1, max_length=MOST_CHANGES, strict=False),
    ]
    set_by: Words = "http"
    only_check: bool = False

    @model_validator(mode="after")
    def _each_once(self) -> PostedChanges:
        targets = [change.target for change in self.changes]
        if len(set(targets)) != len(targets):
            raise ValueError("the same setting of the same user is changed twice; send one of them")
        return self


class PostedCommand(_Posted):
    """A command: release one producer id, or refill the whole user."""

    deed: Literal["refill", "release"]
    user: Name
    producer_id: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    set_by: Words = "http"
    only_check: bool = False

    @model_validator(mode="after")
    def _fits(self) -> PostedCommand:
        if (self.deed == "release") != (self.producer_id is not None):
            raise ValueError("release needs a producer_id, refill has none")
        return self


def changes_in(body: bytes, *, through: str, wall_ms: int, by: str = "") -> tuple[list[Change], bool]:
    """Parse posted changes; return them, and whether they are only checked. Raises BodyInvalid.

    `through`: this gateway. `by`: the author, in place of the one in the body.
    """
    posted = _checked(PostedChanges, body)
    changes = [
        Change(
            target=change.target,
            action=Action(change.action),
            value=change.new_value,
            until_wall_ms=None if change.for_ms is None else wall_ms + change.for_ms,
            set_by=by or posted.set_by,
            set_wall_ms=wall_ms,
            set_through=through,
            note=change.note,
        )
        for change in posted.changes
    ]
    return changes, posted.only_check


def command_in(body: bytes, *, through: str, wall_ms: int, by: str = "") -> tuple[Command, bool]:
    """Parse a posted command, as `changes_in`. Raises BodyInvalid."""
    posted = _checked(PostedCommand, body)
    command = Command(
        type=CommandType(posted.deed),
        user=posted.user,
        producer_id=-1 if posted.producer_id is None else posted.producer_id,
        set_by=by or posted.set_by,
        set_wall_ms=wall_ms,
        set_through=through,
    )
    return command, posted.only_check


def _checked(model: type[_Model], body: bytes) -> _Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise BodyInvalid([_problem(found) for found in error.errors(include_url=False)]) from error


def _problem(found: Any) -> str:
    where = ".".join(str(part) for part in found["loc"])
    text = str(found["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
