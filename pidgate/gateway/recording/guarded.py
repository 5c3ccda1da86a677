"""Decorator that keeps a recording failure from affecting traffic. PURE."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Fallible(Protocol):
    """An object that handles the exceptions of its guarded methods."""

    def failed(self, error: Exception) -> None: ...


_Self = TypeVar("_Self", bound=Fallible)
_P = ParamSpec("_P")


def guarded(method: Callable[Concatenate[_Self, _P], None]) -> Callable[Concatenate[_Self, _P], None]:
    """Return a method that never raises: it calls `failed` instead."""

    @wraps(method)
    def never_raises(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - its purpose
            self.failed(error)

    return never_raises
