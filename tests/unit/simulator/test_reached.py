"""A restart whose first connection to a broker is cut: who knew the brokers' ports gets through all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulator.playing import play
from tests.simulator.themes import Theme, aimed

CUT_BETWEEN_ITS_QUESTIONS: Final = replace(aimed(87_820, Theme.ANYTHING), seed=2)
"""Found by a night: the probe had its answer to SaslHandshake, and none to Metadata.

The seed also decides what the network and the clients do by chance.
"""


def test_a_cluster_is_reached_when_it_has_named_its_brokers() -> None:
    assert play(CUT_BETWEEN_ITS_QUESTIONS).violation == ""
