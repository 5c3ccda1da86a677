"""Every function that takes bytes from outside, found in the sources: each is reached by a target, or says why not.

From outside are all bytes in protocol/ and events/, and those of the modules in OTHERS.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.support.inputs import ROOT

FOLDERS: Final = ("protocol", "events")
OTHERS: Final = (
    "pidgate/gateway/admin/bodies.py",
    "pidgate/gateway/quotas/change_log.py",
    "pidgate/gateway/state/decision_scan.py",
    "pidgate/gateway/tls/certificate.py",
    "pidgate/gateway/tls/der.py",
    "pidgate/gateway/tls/distinguished_name.py",
    "pidgate/gateway/tls/principals.py",
)

_BYTES: Final = {"Buffer", "bytes", "bytearray", "memoryview"}

_WRITES = "writes; what it is given is the gateway's own"
NO_DECODERS: Final = {
    "pidgate/protocol/client_quotas.py:describe_refused": "repeats the correlation id of a request that was read",
    "pidgate/protocol/codec.py:decode_response": "a library's; the gateway reads no answer with it",
    "pidgate/protocol/crc32c.py:crc32c": "sums",
    "pidgate/protocol/logins.py:introduce": "asks again; what it compares is read in messages.py",
    "pidgate/protocol/producer_requests.py:produce_request": _WRITES,
    "pidgate/protocol/producer_requests.py:sasl_authenticate_request": _WRITES,
    "pidgate/protocol/record_batch.py:record_batch": _WRITES,
    "pidgate/protocol/splice.py:Splice.replace": _WRITES,
    "pidgate/protocol/throttle.py:raise_to": "writes at a place that another one has found",
    "pidgate/protocol/throttle.py:write": "writes at a place that another one has found",
    "pidgate/protocol/repeated_produce.py:RepeatedProduce.resume": "takes what a lane has recognised",
}


def decoders() -> set[str]:
    """Return all, as path:Class.function."""
    files = [file for folder in FOLDERS for file in (ROOT / "pidgate" / folder).glob("*.py")]
    files += [ROOT / path for path in OTHERS]
    return {found for file in files for found in _in(file)}


def _in(file: Path) -> Iterator[str]:
    path = file.relative_to(ROOT).as_posix()

    def visit(node: ast.AST, prefix: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from visit(child, f"{prefix}{child.name}.")
            elif (
                isinstance(child, ast.FunctionDef) and not child.name.startswith("_") and _takes_bytes(child)
            ):
                yield f"{path}:{prefix}{child.name}"

    return visit(ast.parse(file.read_text("utf-8")), "")


def _takes_bytes(function: ast.FunctionDef) -> bool:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    names = (
        name.id
        for argument in arguments
        if argument.annotation is not None
        for name in ast.walk(argument.annotation)
        if isinstance(name, ast.Name)
    )
    return any(name in _BYTES for name in names)


def reached(call: Callable[[], object]) -> set[str]:
    """Return the functions that a call enters, in the same form."""
    found: set[Any] = set()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            found.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    root = f"{ROOT}/"
    return {
        f"{code.co_filename.removeprefix(root)}:{code.co_qualname}"
        for code in found
        if code.co_filename.startswith(root)
    }
