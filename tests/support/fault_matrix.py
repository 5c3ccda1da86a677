"""The fault matrix: what may break, what clients see of it, what is guaranteed, and the test that shows it.

docs/faults.md is made of it (`make docs`); tests/unit/support/test_fault_matrix.py holds it to the tests there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """`tests` below tests/, as pytest names them; one without parameters stands for all of them."""

    fault: str
    clients_see: str
    guaranteed: str
    tests: tuple[str, ...]


NOTHING_LOST: Final = "nothing lost, doubled or out of order; no half transaction; no id charged again"
RETRY: Final = "a closed connection; clients connect again and go on"

_BROKERS = "faults/test_brokers_under_load.py::test_every_application_gets_through"
_PROCESSES = "faults/test_processes_under_load.py"
_GETS_THROUGH = f"{_PROCESSES}::test_every_application_gets_through"
_BEHIND = "faults/test_network_under_load.py::test_between_gateway_and_broker"
_BEFORE = "faults/test_network_under_load.py::test_between_clients_and_gateway"
_PROXY = "faults/test_proxy_faults.py"
_SERVER = "unit/gateway/process/test_server.py"
_MACHINE = "faults/test_machine_faults.py"
_BAD = "faults/test_bad_clients_under_load.py::test_beside_bad_clients_everybody_gets_through"
_EVENTS = "faults/test_event_topic_faults.py"
_RESTART = "faults/test_restart_faults.py"
_FLEET = "faults/test_fleet_faults.py"
_GONE = "faults/test_gateway_gone.py"
_STARTED_AGAIN = f"{_GONE}::test_nothing_is_lost_when_it_is_started_again"

MATRIX: Final[dict[str, tuple[Row, ...]]] = {
    "Brokers": (
        Row(
            "killed (kill -9), under load, in mid-answer",
            f"{RETRY} at the partitions' new leaders",
            f"{NOTHING_LOST}; the log counts the requests that were in flight",
            (f"{_BROKERS}[killed]", f"{_SERVER}::test_a_broker_that_dies_in_mid_answer_closes_its_client"),
        ),
        Row(
            "stopped in good order",
            "NOT_LEADER_OR_FOLLOWER, then the new leader",
            NOTHING_LOST,
            (f"{_BROKERS}[stopped]",),
        ),
        Row(
            "hangs",
            "answers that come late, or another leader; a producer's socket takes no more",
            "memory stays bounded, other brokers' clients notice nothing",
            (
                f"{_BROKERS}[hangs]",
                f"{_PROXY}::test_a_broker_that_hangs_bounds_what_is_read_from_its_producers",
            ),
        ),
        Row(
            "back on another port",
            f"{RETRY}; its port at the gateway stays the same",
            NOTHING_LOST,
            (f"{_BROKERS}[elsewhere]",),
        ),
        Row("leaders moved", "NOT_LEADER_OR_FOLLOWER", NOTHING_LOST, (f"{_BROKERS}[leaders_move]",)),
        Row(
            "all dead",
            "a closed connection; no broker could be reached",
            "/readyz says 503 within 3 s of the last one (10 s more if they hang) and 200 when one is back; "
            "pidgate_broker_up; cluster_not_reached with cause and remedy, written less and less often",
            (
                "unit/gateway/cluster/test_probe.py::test_readiness_and_the_metric_follow_the_brokers",
                "unit/gateway/cluster/test_probe.py"
                "::test_a_cluster_that_does_not_answer_is_logged_less_and_less",
            ),
        ),
        Row(
            "controller changed", "as when a broker dies", NOTHING_LOST, (f"{_BROKERS}[controller_changes]",)
        ),
    ),
    "Network, between clients and gateway and between gateway and brokers": (
        Row("cut, and new connections refused", RETRY, NOTHING_LOST, (f"{_BEHIND}[cut]", f"{_BEFORE}[cut]")),
        Row(
            "reset, again and again",
            RETRY,
            f"{NOTHING_LOST}; nothing is left of what was reset",
            (
                f"{_BEHIND}[reset]",
                f"{_BEFORE}[reset]",
            ),
        ),
        Row(
            "slow (20 KB/s)", "answers that come late", NOTHING_LOST, (f"{_BEHIND}[slow]", f"{_BEFORE}[slow]")
        ),
        Row(
            "half-open: no byte and no end arrives",
            "requests time out at the client, which connects again",
            f"{NOTHING_LOST}; an idle connection is closed after limits.idle",
            (
                f"{_BEHIND}[half-open]",
                f"{_BEFORE}[half-open]",
                f"{_SERVER}::test_who_asks_nothing_is_closed_in_time",
            ),
        ),
        Row(
            "a peer vanishes without a word, on either side",
            "(a client is gone) a closed connection, if its broker vanished",
            "noticed by TCP keepalive: after 60 s without a byte a probe every 10 s, closed after six without an "
            "answer; load balancers that forget idle connections (AWS NLB 350 s, Azure 4 min) see the probes",
            (
                "unit/gateway/proxy/test_keepalive.py::test_a_peer_that_vanished_is_noticed",
                "unit/gateway/proxy/test_keepalive.py"
                "::test_keepalive_is_on_towards_clients_and_brokers_lent_connections_included",
            ),
        ),
        Row(
            "half-closed by the client",
            "all answers to what it had sent",
            "a client may end its sending side first",
            (f"{_SERVER}::test_a_client_that_sends_byte_by_byte_and_closes_its_side",),
        ),
    ),
    "Processes of the gateway": (
        Row(
            "killed (kill -9)",
            f"{RETRY}; ids admitted in the last 200 ms (5 s without the topic) may be refused once",
            f"{NOTHING_LOST} but those of 200 ms (5 s) before; state from the topic or the directory",
            (
                f"{_GETS_THROUGH}[gateway killed]",
                f"{_RESTART}::test_fifty_kills_with_the_topic",
                f"{_RESTART}::test_kills_with_a_state_directory_alone",
            ),
        ),
        Row(
            "killed (kill -9) before a SASL cluster, and no client bootstraps",
            "a closed connection; clients connect again to the brokers' ports and go on",
            "the ports are open at once with own_client, state_dir or node_ids; pidgate check warns without them",
            ("kafka/test_restart.py::test_the_brokers_ports_are_open_after_a_kill",),
        ),
        Row(
            "killed or drained for good, another one ready",
            "a closed connection; clients connect again to the same address and go on",
            "nothing lost, doubled or out of order with one name, one port or a balancer; see below",
            (
                f"{_GONE}::test_every_family_goes_on_through_the_other_gateway",
                f"{_GONE}::test_a_gateway_vanishes_with_its_machine",
            ),
        ),
        Row(
            "segmentation fault, or killed for want of memory, and started again a second later",
            "with one gateway nobody is served until it listens again; with two on one port a pause below 0.5 s",
            "nothing lost, doubled or out of order; with one gateway sarama and kafkajs give records up meanwhile, "
            "and tell the application",
            (
                f"{_STARTED_AGAIN}[segmentation_fault-one gateway]",
                f"{_STARTED_AGAIN}[segmentation_fault-two on one port]",
                f"{_STARTED_AGAIN}[out_of_memory-one gateway]",
                f"{_STARTED_AGAIN}[out_of_memory-two on one port]",
            ),
        ),
        Row(
            "its event loop hangs for 10 s",
            "its connections wait for 10 s; those that a lane carries go on",
            "nothing lost, doubled or out of order; /livez says 503 after 6 s, event_loop_hangs names the place, and "
            "systemd's watchdog gets no message",
            (
                f"{_STARTED_AGAIN}[hang-one gateway]",
                f"{_STARTED_AGAIN}[hang-two on one port]",
                "unit/gateway/process/test_hanging.py::test_a_loop_that_hangs_is_said_by_a_thread",
            ),
        ),
        Row(
            "killed, and its newest snapshot damaged",
            RETRY,
            "the snapshot is set aside and named; the file before it is used",
            (f"{_RESTART}::test_kills_with_the_newest_snapshot_damaged_each_time",),
        ),
        Row(
            "SIGTERM",
            "answers to all that is in flight, then a closed connection; /readyz says 503",
            "exit code 0 within drain_timeout; mutes are not waited for, who reads nothing is cut off",
            (
                f"{_GETS_THROUGH}[gateway stopped]",
                f"{_PROCESSES}::test_a_drain_is_not_ready_accepts_nobody_answers_what_is_in_flight_and_ends_with_0",
                f"{_SERVER}::test_a_drain_waits_for_answers_and_not_for_mutes",
                f"{_SERVER}::test_a_drain_cuts_off_who_reads_nothing",
            ),
        ),
        Row(
            "a second signal",
            "a closed connection",
            "ends at once, exit code not 0, no process stays",
            (f"{_PROCESSES}::test_a_second_signal_ends_it_at_once",),
        ),
        Row(
            "two gateways restarted one after the other",
            RETRY,
            f"{NOTHING_LOST}; the fleet's quota is as it was",
            ("faults/test_rolling_restart.py::test_no_application_notices",),
        ),
        Row(
            "one of several gateways on one port killed, standing still, or told to end",
            "killed: a closed connection; standing still: its share of new connections waits; told to end: nothing",
            f"{NOTHING_LOST}; a drain resets no connection that is about to be made",
            (
                "kafka/test_reuse_port.py::test_a_drain_resets_nobody_and_what_is_killed_or_stands_still_does",
                "kafka/test_reuse_port.py::test_connections_are_dealt_to_all_of_them",
            ),
        ),
        Row(
            "a cold start with thousands of running producers",
            "nothing",
            "grace: none is refused or charged, up to ten times the rate",
            (
                f"{_RESTART}::test_three_thousand_running_producers_are_switched_over",
                f"{_RESTART}::test_a_grace_that_began_only_because_the_topic_could_not_be_read_ends_when_it_can",
            ),
        ),
        Row(
            "a start before a topic of a million events",
            "nothing; everything passes meanwhile, and is noted",
            "ready within 15 s of CPU",
            (f"{_RESTART}::test_ready_within_15_s_with_a_million_events_and_forwarding_meanwhile",),
        ),
    ),
    "Events topic": (
        Row(
            "its broker killed, hanging, elsewhere, one of three away",
            "nothing",
            "events wait (50,000 or 64 MB) and are written when it is back; nobody waits for them",
            (
                f"{_EVENTS}::test_a_killed_broker_comes_back",
                f"{_EVENTS}::test_a_broker_that_hangs_for_half_a_minute",
                f"{_EVENTS}::test_all_brokers_return_on_other_ports",
                f"{_EVENTS}::test_one_of_three_brokers_dies_and_stays_away",
                f"{_RESTART}::test_a_broker_of_the_events_topic_that_hangs_is_in_nobodys_way",
            ),
        ),
        Row(
            "slower than the events come",
            "nothing",
            "as above",
            (f"{_EVENTS}::test_a_topic_that_is_slower_than_the_events_come",),
        ),
        Row(
            "never there",
            "nothing",
            "what finds no room is dropped and counted",
            (f"{_EVENTS}::test_without_the_topic_events_are_dropped_when_there_is_no_more_room",),
        ),
        Row(
            "deleted, or unauthorised",
            "nothing",
            "made again, or the log names the right that is missing; latency as without the fault",
            (
                f"{_EVENTS}::test_a_topic_that_is_deleted_is_made_again_and_followed_from_its_beginning",
                f"{_RESTART}::test_events_that_cannot_be_written_are_in_nobodys_way",
            ),
        ),
        Row(
            "cut off from a fleet for longer than a window",
            "nothing; each gateway gives the whole rate",
            "healed: each is charged what the others gave, down to one capacity below 0 and no further",
            (f"{_FLEET}::test_a_topic_that_was_cut_for_long_and_heals_is_no_outage",),
        ),
        Row(
            "a gateway of a fleet killed",
            "at that gateway a closed connection",
            "missed and met again by name; the quota over all gateways holds",
            (
                f"{_FLEET}::test_a_gateway_that_was_killed_is_missed_and_its_successor_is_met",
                f"{_FLEET}::test_the_quota_holds_at",
                f"{_FLEET}::test_the_quota_holds_on_one_port",
                f"{_FLEET}::test_what_was_too_much_is_paid_back",
            ),
        ),
    ),
    "The machine": (
        Row(
            "the state directory's disk full",
            "nothing",
            "the log names it; written as soon as there is room, and a restart finds it",
            (f"{_MACHINE}::test_a_full_state_directory_is_in_nobodys_way_and_written_when_there_is_room",),
        ),
        Row(
            "the state directory read-only",
            "nothing",
            "the log names it and the remedy",
            (f"{_MACHINE}::test_a_read_only_state_directory_is_in_nobodys_way",),
        ),
        Row(
            "the wall clock jumps, ahead or back",
            "nothing",
            "decisions are by the monotonic clock: nothing is refilled, forgotten or charged again",
            (
                f"{_MACHINE}::test_a_wall_clock_that_jumps_both_ways_under_load_is_noticed_by_nobody",
                f"{_MACHINE}::test_a_jump_refills_nothing_and_a_restart_behind_it_forgets_nothing",
            ),
        ),
        Row(
            "no descriptor free",
            "who comes is closed without an answer; who is there is served",
            "open_files_exhausted in the log and pidgate_open_files_exhausted_total; served again when there are some",
            (f"{_MACHINE}::test_without_a_free_descriptor_it_says_so_and_serves_on_whom_it_has",),
        ),
        Row(
            "the gateway's certificate expired",
            "new clients that verify refuse it; connections that are there go on",
            "a new one in the same files is shown without a restart",
            (
                f"{_MACHINE}::test_an_expired_certificate_keeps_out_who_comes_and_a_new_one_lets_in_without_a_restart",
                "kafka/test_tls.py::test_certificates_rotated_under_load_cost_no_connection",
            ),
        ),
        Row(
            "a broker's certificate expired, of another name, of another CA",
            "a closed connection",
            "nothing is sent to it; the log names the remedy",
            (
                "unit/gateway/proxy/test_tls_connections.py::"
                "test_a_broker_that_cannot_be_trusted_gets_nothing_and_the_log_names_the_remedy",
            ),
        ),
        Row(
            "a delegation token or a session expired, a token revoked",
            "nothing; the gateway takes a new one",
            "no identity is lost or mixed up",
            (
                "kafka/test_upstream_identity.py::test_tokens_and_sessions_that_end_under_load_are_noticed_by_nobody",
                "kafka/test_upstream_identity.py::test_a_revoked_token_is_replaced",
            ),
        ),
        Row(
            "hours of everything at once",
            "refusals, where they are meant",
            "make soak: RSS has to grow by less than 2 MB an hour; an injected leak is caught by the same statistic",
            ("faults/test_soak.py::test_an_injected_leak_is_caught",),
        ),
    ),
    "Clients": (
        Row(
            "never read",
            "their own answers stop; nobody else's",
            "memory stays bounded; a slow consumer is not read ahead of",
            (
                f"{_BAD}[never reads]",
                f"{_PROXY}::test_a_thousand_clients_that_ask_and_never_read",
                f"{_PROXY}::test_a_consumer_that_reads_slowly_is_not_read_ahead_of",
            ),
        ),
        Row(
            "send one byte a second, or half a frame, or announce a large one",
            "closed after 60 s, and a second for each MiB that has arrived",
            "memory stays bounded, others are served",
            (f"{_BAD}[dribbles]", f"{_PROXY}::test_stalled_half_frames_and_length_bombs"),
        ),
        Row(
            "leave in mid-frame",
            "(they are gone)",
            "nothing of it has happened: not counted, not in the log",
            (f"{_BAD}[leaves in mid frame]",),
        ),
        Row(
            "leave while muted, or before their refusal is written",
            "(they are gone)",
            "what was held is dropped; nothing is left of them",
            (f"{_BAD}[leaves while muted]", f"{_BAD}[leaves while refused]"),
        ),
        Row(
            "are refused in mid-transaction for longer than transaction.timeout.ms",
            "an error of the transaction",
            "aborted as a whole: no read_committed consumer sees a part of it; the next one commits",
            (
                "faults/test_transactions_refused_for_long.py::test_it_is_aborted_as_a_whole_and_the_next_one_commits",
            ),
        ),
        Row(
            "send a frame above limits.frame",
            "a closed connection",
            "the log names the limit",
            ("hostile/test_large_frames.py::test_attack",),
        ),
    ),
}


def rows() -> list[Row]:
    return [row for group in MATRIX.values() for row in group]
