"""Build the lane's extension, and compile the hot path with mypyc; all else about the package is in pyproject.toml.

All of HOT_MODULES are compiled, or none: compiled apart, every attribute of the others would be looked up by name.
They run the same uncompiled, so the plain source is installed instead

- where the machine cannot compile (no C compiler, or no headers of Python);
- where `PIDGATE_PURE=1` asks for it;
- in an editable install: a compiled module beside its source would hide every later edit of it.

`pidgate version` reports which of the two is installed.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

HOT_MODULES = [
    "pidgate/events/writing.py",
    "pidgate/gateway/clock.py",
    "pidgate/gateway/metrics/counters.py",
    "pidgate/gateway/proxy/actions.py",
    "pidgate/gateway/proxy/apis/api.py",
    "pidgate/gateway/proxy/apis/authentication.py",
    "pidgate/gateway/proxy/apis/client_quotas.py",
    "pidgate/gateway/proxy/apis/delegation_tokens.py",
    "pidgate/gateway/proxy/apis/fetch.py",
    "pidgate/gateway/proxy/apis/passing_produce.py",
    "pidgate/gateway/proxy/apis/produce.py",
    "pidgate/gateway/proxy/apis/producer_ids.py",
    "pidgate/gateway/proxy/apis/responses.py",
    "pidgate/gateway/proxy/apis/table.py",
    "pidgate/gateway/proxy/apis/topics.py",
    "pidgate/gateway/proxy/apis/transaction_parts.py",
    "pidgate/gateway/proxy/broker_channel.py",
    "pidgate/gateway/proxy/broker_link.py",
    "pidgate/gateway/proxy/broker_login.py",
    "pidgate/gateway/proxy/buffers.py",
    "pidgate/gateway/proxy/client_channel.py",
    "pidgate/gateway/proxy/client_connection.py",
    "pidgate/gateway/proxy/connection.py",
    "pidgate/gateway/proxy/connection_age.py",
    "pidgate/gateway/proxy/connection_quotas.py",
    "pidgate/gateway/proxy/connection_state.py",
    "pidgate/gateway/proxy/frame_reservation.py",
    "pidgate/gateway/proxy/read_ahead.py",
    "pidgate/gateway/proxy/reading.py",
    "pidgate/gateway/proxy/receive_buffer.py",
    "pidgate/gateway/proxy/session.py",
    "pidgate/gateway/proxy/tls_connections.py",
    "pidgate/gateway/proxy/tls_inbox.py",
    "pidgate/gateway/proxy/tls_transport.py",
    "pidgate/gateway/proxy/turns.py",
    "pidgate/gateway/recording/connection_recorder.py",
    "pidgate/gateway/recording/guarded.py",
    "pidgate/gateway/recording/recorder.py",
    "pidgate/gateway/recording/sampling.py",
    "pidgate/gateway/recording/topology.py",
    "pidgate/gateway/recording/usage.py",
    "pidgate/gateway/state/decision_scan.py",
    "pidgate/gateway/state/event_log.py",
    "pidgate/gateway/state/recent_events.py",
    "pidgate/gateway/state/record_accumulator.py",
    "pidgate/protocol/frames.py",
    "pidgate/protocol/headers.py",
    "pidgate/protocol/messages.py",
    "pidgate/protocol/produce.py",
    "pidgate/protocol/produce_answers.py",
    "pidgate/protocol/repeated_produce.py",
    "pidgate/protocol/versions.py",
    "pidgate/protocol/work.py",
    "pidgate/quota/admission.py",
    "pidgate/quota/byte_quota.py",
    "pidgate/quota/counters.py",
    "pidgate/quota/decisions.py",
    "pidgate/quota/entities.py",
    "pidgate/quota/layered_filter.py",
    "pidgate/quota/producer_ids.py",
    "pidgate/quota/producer_states.py",
    "pidgate/quota/sticky.py",
    "pidgate/quota/sticky_entries.py",
]
SHARED_LIBRARY = "pidgate._hot_path"
"""mypyc puts all modules into one library, `<this>__mypyc`; the dot keeps it inside the package."""


LANE = "pidgate/gateway/lane"


def main() -> None:
    # Not in build/: from there setuptools would take into a wheel what an older build has left.
    with tempfile.TemporaryDirectory() as folder:
        setup(ext_modules=[*_lane(folder), *_extensions(folder)], options={"build": {"build_base": folder}})


def _lane(folder: str) -> list[Extension]:
    """Return the threads in C that carry what needs no decision; none where they cannot be built."""
    if os.environ.get("PIDGATE_PURE") == "1" or sys.platform != "linux" or not _can_compile(folder):
        return []
    sources = [f"{LANE}/{name}.c" for name in ("core", "threads", "module")]
    headers = [f"{LANE}/{name}.h" for name in ("core", "threads")]
    options = ["-std=c11", "-O2", "-fno-strict-aliasing", "-pthread"]
    return [
        Extension(f"{LANE.replace('/', '.')}._lane", sources, depends=headers, extra_compile_args=options)
    ]


def _extensions(folder: str) -> list[Any]:
    """Return the compiled modules of a wheel; none for all else that setup.py is run for."""
    if "bdist_wheel" not in sys.argv or os.environ.get("PIDGATE_PURE") == "1" or not _can_compile(folder):
        return []
    from mypyc.build import mypycify

    # Types of libraries are of no use here, and not all of them have to be installed.
    options = ["--config-file", os.devnull, "--cache-dir", os.devnull, "--ignore-missing-imports"]
    # debug_level: what it adds names the temporary folder, and two builds would differ.
    return mypycify(
        [*options, *HOT_MODULES],
        opt_level="2",
        debug_level="0",
        target_dir=folder,
        group_name=SHARED_LIBRARY,
    )


def _can_compile(folder: str) -> bool:
    """Try the compiler, Python's headers and the linker on an empty module."""
    source = Path(folder) / "empty.c"
    source.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_empty(void) { return NULL; }\n")
    trial = build_ext(Distribution({"ext_modules": [Extension("empty", [str(source)])]}))
    trial.build_lib = trial.build_temp = f"{folder}/trial"
    try:
        trial.ensure_finalized()
        trial.run()
    except (BaseError, CCompilerError, OSError) as error:
        print(f"pidgate: the hot path is not compiled: {error}", file=sys.stderr)
        return False
    return True


main()
