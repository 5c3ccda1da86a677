"""Compile the hot path with mypyc; everything else about the package is in pyproject.toml.

All of HOT_MODULES are compiled, or none: compiled apart, every attribute of the others would be looked up by name.
They run the same uncompiled, so the plain source is installed instead

- where the machine cannot compile (no C compiler, or no headers of Python);
- where `PIDGATE_PURE=1` asks for it;
- in an editable install: a compiled module beside its source would hide every later edit of it.

`pidgate version` says which of the two runs.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError

HOT_MODULES = [
    "pidgate/gateway/clock.py",
    "pidgate/gateway/metrics/counters.py",
    "pidgate/gateway/proxy/broker_channel.py",
    "pidgate/gateway/proxy/buffers.py",
    "pidgate/gateway/proxy/client_channel.py",
    "pidgate/gateway/proxy/conversation.py",
    "pidgate/gateway/proxy/flow_control.py",
    "pidgate/gateway/proxy/in_flight_requests.py",
    "pidgate/gateway/proxy/reading.py",
    "pidgate/gateway/proxy/receive_buffer.py",
    "pidgate/gateway/proxy/treatments.py",
    "pidgate/gateway/recording/connection_recorder.py",
    "pidgate/gateway/recording/usage.py",
    "pidgate/protocol/produce.py",
    "pidgate/protocol/produce_answers.py",
    "pidgate/protocol/repeated_produce.py",
    "pidgate/quota/admission.py",
    "pidgate/quota/bloom.py",
    "pidgate/quota/byte_quota.py",
    "pidgate/quota/layered_filter.py",
    "pidgate/quota/sticky.py",
    "pidgate/quota/verdicts.py",
]
SHARED_LIBRARY = "pidgate._hot_path"
"""mypyc puts all modules into one library, `<this>__mypyc`; the dot keeps it inside the package."""


def _can_compile() -> bool:
    """Try the compiler, Python's headers and the linker on an empty module."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_empty(void) { return NULL; }\n")
        trial = build_ext(Distribution({"ext_modules": [Extension("empty", [str(source)])]}))
        trial.build_lib = trial.build_temp = folder
        try:
            trial.ensure_finalized()
            trial.run()
        except (BaseError, OSError) as error:
            print(f"pidgate: the hot path is not compiled: {error}", file=sys.stderr)
            return False
    return True


def _extensions() -> list[Any]:
    is_editable = "editable_wheel" in sys.argv or "develop" in sys.argv
    builds = {"bdist_wheel", "build_ext", "build", "install"} & set(sys.argv)
    if os.environ.get("PIDGATE_PURE") == "1" or is_editable or not builds or not _can_compile():
        return []
    from mypyc.build import mypycify

    # Types of libraries are of no use here, and not all of them have to be installed.
    options = ["--config-file", os.devnull, "--ignore-missing-imports"]
    # 0 takes half the time to compile: for tests, which ask what it does and not how fast.
    opt_level = os.environ.get("PIDGATE_OPT_LEVEL", "2")
    return mypycify([*options, *HOT_MODULES], opt_level=opt_level, group_name=SHARED_LIBRARY)


setup(ext_modules=_extensions())
