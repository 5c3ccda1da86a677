"""Rates of client ids in a file: what is refused, and what commands say of the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pidgate.cli.checking import _print_users
from pidgate.cli.quota_describe import rows_of
from pidgate.gateway.config import loading
from pidgate.gateway.present.explaining import Moment, explanation
from pidgate.gateway.present.user_words import sentences
from pidgate.gateway.quotas.administration import InForce
from pidgate.protocol import messages
from pidgate.quota.decisions import Reason
from pidgate.quota.entities import ANONYMOUS, account_of
from pidgate.quota.producer_ids import ProducerIdQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.loopback import RunningGateway, ScriptedBroker, gateway_before, run, until
from tests.unit.quota.world import HOUR_MS, World, batch, seeds

HEAD = "cluster: {bootstrap_servers: [127.0.0.1:1]}\n"
PARTS = (
    "clients: {billing: {producer_ids_rate: 50, producer_byte_rate: 1MB}, bulk: {producer_byte_rate: 2MB}}"
)


def file_of(own: str, more: str = "") -> str:
    return HEAD + f"quotas: {{mode: enforce, users: {{ANONYMOUS: {{{own}}}}}}}\n{more}"


def test_a_client_id_is_given_a_part_where_its_byte_rates_are() -> None:
    quotas = loading.parse(file_of(f"producer_ids_rate: 200, {PARTS}")).to_quotas()
    assert quotas.users[ANONYMOUS].client_rates_milli == {"billing": 50_000}
    assert (ANONYMOUS, "billing") in quotas.bytes.rates


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (file_of(PARTS), "producer_ids_rate: is missing"),
        (
            file_of(f"producer_ids_rate: 49, {PARTS}"),
            "have 50 new producer ids together, above the user's 49",
        ),
        (
            file_of(f"producer_ids_rate: 50, {PARTS}", "events: {redact: [client_id]}\n"),
            "hides the client_id",
        ),
        (HEAD + "quotas: {default: {clients: {a: {producer_ids_rate: 1}}}}\n", "producer_ids_rate"),
        (HEAD + "quotas: {clients: {a: {producer_ids_rate: 1}}}\n", "producer_ids_rate"),
    ],
)
def test_a_rate_that_is_no_part_is_refused(text: str, said: str) -> None:
    with pytest.raises(loading.ConfigError, match=said):
        loading.parse(text)


def test_check_describe_and_explain_show_each_part_and_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    quotas = loading.parse(file_of(f"producer_ids_rate: 200, {PARTS}")).to_quotas()
    _print_users(quotas)
    shown = capsys.readouterr().out
    assert "ANONYMOUS (client id billing)" in shown
    assert re.search(r"ANONYMOUS \(other client ids\) +150 new producer ids per 1h", shown)

    state = ProducerIdQuota(quotas, seeds(), 0)
    state.admitted_elsewhere(account_of(quotas, ANONYMOUS, "billing"), 7, 0, Reason.FIRST_SEEN)
    in_force = InForce(quotas=quotas, provenance={}, in_file=quotas, changes=(), version=1)
    answer = explanation(ANONYMOUS, None, state=state, in_force=in_force, moment=Moment(0, HOUR_MS))
    answer |= {"gateway": "gw", "unseen": None}
    lines = list(sentences(answer))
    assert "ANONYMOUS: quota 200 per 1h (file)" in lines[0]
    assert "  of it for client id billing: 50 per 1h (file), tokens 49 of 50" in lines
    assert "Tokens: 150 of 150: a new id is admitted now." in lines

    entry = {
        **answer,
        "note": "",
        "byte_rates": [],
        "effective_rate": answer["producer_ids_rate"],
        "effective_transactional_ids_rate": answer["transactional_ids_rate"],
        "effective_producer_states_rate": answer["producer_states_rate"],
        "effective_mode": answer["mode"],
    }
    rows = [row[1:6] for row in rows_of(entry, HOUR_MS, ANONYMOUS)]
    assert ("producer_ids_rate", "50 per 1h of client billing", "file", "", "49 of 50") in rows


def test_an_id_that_waits_for_its_part_is_explained() -> None:
    quotas = loading.parse(
        file_of("producer_ids_rate: 9, clients: {billing: {producer_ids_rate: 1}}")
    ).to_quotas()
    world = World(quotas)
    client = world.connect(ANONYMOUS, client_id="billing")
    for producer_id in (1, 2, 3):
        world.judge(client, batch(producer_id))
    world.now_ms = 10_000
    world.refusal(client, batch(3))
    state, moment = world.admission.state, Moment(world.now_ms, HOUR_MS)
    in_force = InForce(quotas=quotas, provenance={}, in_file=quotas, changes=(), version=1)
    answer = explanation(ANONYMOUS, 3, state=state, in_force=in_force, moment=moment)
    assert answer["producer_id"]["waiting"]["client_id"] == "billing"
    assert answer["client_ids"][0]["waiting"] == 1


def test_a_gateway_counts_a_part_by_itself_also_after_a_restart(tmp_path: Path) -> None:
    file = yaml.safe_load(file_of(f"producer_ids_rate: 200, {PARTS}"))

    async def bring(gateway: RunningGateway, client_id: str, *producer_ids: int) -> None:
        await until(lambda: gateway.metric("state_restored"))
        client = await gateway.connect()
        client.send(raw.request(messages.METADATA, 1, {"topics": []}, client_id=client_id))
        await client.frame()
        for producer_id in producer_ids:
            batch = record_batch(producer_id, 0, 0)
            client.send(framed(produce_request(9, [("orders", [(0, batch)])])))
            await client.frame()

    def tokens(gateway: RunningGateway) -> list[float]:
        names = "ANONYMOUS (client id billing)", "ANONYMOUS"
        return [gateway.metric("producer_ids_tokens", user=name) for name in names]

    async def scenario() -> None:
        settings = {"quotas": file["quotas"], "state_dir": str(tmp_path)}
        async with ScriptedBroker() as broker:
            async with gateway_before(broker.address, **settings) as gateway:
                await bring(gateway, "billing", 1, 2, 3)
                await bring(gateway, "rogue", 11, 12)
                assert tokens(gateway) == [pytest.approx(47, abs=0.1), pytest.approx(148, abs=0.1)]
            async with gateway_before(broker.address, **settings) as again:
                await bring(again, "billing", 1, 2, 3, 4)
                await bring(again, "rogue", 11, 12)
                assert tokens(again) == [pytest.approx(46, abs=0.1), pytest.approx(148, abs=0.1)]

    run(scenario())
