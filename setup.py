"""The hot path, compiled by mypyc where that is asked for: `PIDGATE_COMPILE=1 pip install .`

It needs mypy and a C compiler. The same Python source runs with and without it; everything else about the package is in
pyproject.toml. These modules are together what a Produce and its answer run through, and the classes whose attributes
they read on the way: compiled apart, every attribute of the others would be looked up by name.
"""

import os
from typing import Any

from setuptools import setup

HOT_MODULES = [
    "gateway/answer_line.py",
    "gateway/broker_channel.py",
    "gateway/buffers.py",
    "gateway/client_channel.py",
    "gateway/clock.py",
    "gateway/connection_recorder.py",
    "gateway/conversation.py",
    "gateway/counters.py",
    "gateway/flow.py",
    "gateway/inbox.py",
    "gateway/reading.py",
    "gateway/treatments.py",
    "gateway/usage.py",
    "protocol/produce.py",
    "protocol/produce_answers.py",
    "protocol/repeated_produce.py",
    "quota/admission.py",
    "quota/bloom.py",
    "quota/byte_quota.py",
    "quota/layered_filter.py",
    "quota/sticky.py",
    "quota/verdicts.py",
]


def _extensions() -> list[Any]:
    if os.environ.get("PIDGATE_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    # Types of libraries are of no use here, and not all of them have to be installed.
    options = ["--config-file", os.devnull, "--ignore-missing-imports"]
    # 0 takes half the time to compile: for tests, which ask what it does and not how fast.
    opt_level = os.environ.get("PIDGATE_OPT_LEVEL", "2")
    return mypycify([*options, *HOT_MODULES], opt_level=opt_level, group_name="pidgate")


setup(ext_modules=_extensions())
