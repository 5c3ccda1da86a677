"""The fault matrix: what may break, what clients see of it, what is guaranteed, and the test that shows it.

docs/explanation/faults.md is made of it (`make docs`); tests/unit/support/test_fault_matrix.py holds it to the tests.
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


NOTHING_LOST: Final = "intact"
RETRY: Final = "reconnect"
"""Words of the page, which defines them."""

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
            f"{RETRY} to the new leaders",
            f"{NOTHING_LOST}; the log counts requests in flight",
            (f"{_BROKERS}[killed]", f"{_SERVER}::test_a_broker_that_dies_in_mid_answer_closes_its_client"),
        ),
        Row(
            "stopped cleanly",
            "NOT_LEADER_OR_FOLLOWER, then the new leader",
            NOTHING_LOST,
            (f"{_BROKERS}[stopped]",),
        ),
        Row(
            "hangs",
            "late answers, or another leader; producers' sockets block",
            "memory stays bounded; clients of other brokers are unaffected",
            (
                f"{_BROKERS}[hangs]",
                f"{_PROXY}::test_a_broker_that_hangs_bounds_what_is_read_from_its_producers",
            ),
        ),
        Row(
            "back on another port",
            f"{RETRY}; the broker's port at the gateway stays the same",
            NOTHING_LOST,
            (f"{_BROKERS}[elsewhere]",),
        ),
        Row("leaders moved", "NOT_LEADER_OR_FOLLOWER", NOTHING_LOST, (f"{_BROKERS}[leaders_move]",)),
        Row(
            "all dead",
            "a closed connection",
            "/readyz returns 503 within 5 s (10 s more if they hang) and 200 when one is back; "
            "pidgate_broker_up; cluster_not_reached with cause and remedy, at growing intervals",
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
            f"{NOTHING_LOST}; nothing remains of reset connections",
            (
                f"{_BEHIND}[reset]",
                f"{_BEFORE}[reset]",
            ),
        ),
        Row("slow (20 KB/s)", "late answers", NOTHING_LOST, (f"{_BEHIND}[slow]", f"{_BEFORE}[slow]")),
        Row(
            "half-open: neither data nor FIN arrives",
            "request time-outs, then reconnect",
            f"{NOTHING_LOST}; an idle connection is closed after limits.idle",
            (
                f"{_BEHIND}[half-open]",
                f"{_BEFORE}[half-open]",
                f"{_SERVER}::test_who_asks_nothing_is_closed_in_time",
            ),
        ),
        Row(
            "a peer vanishes without a FIN, on either side",
            "a closed connection, if its broker vanished",
            "TCP keepalive: after 60 s idle a probe every 10 s, closed after six unanswered ones; load balancers "
            "with idle time-outs (AWS NLB 350 s, Azure 4 min) see the probes",
            (
                "unit/gateway/proxy/test_keepalive.py::test_a_peer_that_vanished_is_noticed",
                "unit/gateway/proxy/test_keepalive.py"
                "::test_keepalive_is_on_towards_clients_and_brokers_lent_connections_included",
            ),
        ),
        Row(
            "half-closed by the client",
            "all answers to the requests sent",
            "a client may close its sending side first",
            (f"{_SERVER}::test_a_client_that_sends_byte_by_byte_and_closes_its_side",),
        ),
    ),
    "Processes of the gateway": (
        Row(
            "killed (kill -9)",
            f"{RETRY}; ids admitted in the last 200 ms (5 s without the topic) may be refused once",
            f"{NOTHING_LOST}, except ids of those 200 ms (5 s); state is restored from topic or directory",
            (
                f"{_GETS_THROUGH}[gateway killed]",
                f"{_RESTART}::test_fifty_kills_with_the_topic",
                f"{_RESTART}::test_kills_with_a_state_directory_alone",
            ),
        ),
        Row(
            "killed (kill -9) before a SASL cluster, and no client bootstraps",
            f"{RETRY} to the brokers' ports",
            "ports open at the start with own_client, state_dir or node_ids; pidgate check warns without them",
            ("kafka/test_restart.py::test_the_brokers_ports_are_open_after_a_kill",),
        ),
        Row(
            "upgraded and rolled back one by one, or taken out of the path",
            RETRY,
            f"{NOTHING_LOST}; each version reads the other's state",
            (
                "faults/test_upgrade.py::test_up_and_back_under_load_loses_nothing",
                f"{_GONE}::test_the_gateways_are_taken_out_with_clients_running",
            ),
        ),
        Row(
            "a pod is deleted",
            f"{RETRY} to another pod",
            f"{NOTHING_LOST}; no new connection is reset",
            (f"{_GONE}::test_a_deleted_pod_resets_no_new_connection_and_loses_nothing",),
        ),
        Row(
            "killed or drained for good, another one stands by",
            f"{RETRY} to the same address",
            "log intact with one name, one port or a balancer; see below",
            (
                f"{_GONE}::test_every_family_goes_on_through_the_other_gateway",
                f"{_GONE}::test_a_gateway_vanishes_with_its_machine",
            ),
        ),
        Row(
            "segmentation fault or OOM kill, restarted a second later",
            "one gateway: no service until it listens again; two on one port: a pause below 0.5 s",
            "log intact; with one gateway sarama and kafkajs give up records and report them to the application",
            (
                f"{_STARTED_AGAIN}[segmentation_fault-one gateway]",
                f"{_STARTED_AGAIN}[segmentation_fault-two on one port]",
                f"{_STARTED_AGAIN}[out_of_memory-one gateway]",
                f"{_STARTED_AGAIN}[out_of_memory-two on one port]",
            ),
        ),
        Row(
            "its event loop hangs for 10 s",
            "its connections wait for 10 s; those in a lane go on",
            "log intact; /livez returns 503 after 6 s, event_loop_hangs names the place, the watchdog gets no message",
            (
                f"{_STARTED_AGAIN}[hang-one gateway]",
                f"{_STARTED_AGAIN}[hang-two on one port]",
                "unit/gateway/process/test_hanging.py::test_a_loop_that_hangs_is_said_by_a_thread",
            ),
        ),
        Row(
            "killed, and its newest snapshot damaged",
            RETRY,
            "the snapshot is set aside and logged; the previous one is used",
            (f"{_RESTART}::test_kills_with_the_newest_snapshot_damaged_each_time",),
        ),
        Row(
            "SIGTERM",
            "answers to requests in flight, then a closed connection; /readyz returns 503",
            "exit code 0 within drain_timeout; it does not wait for mutes or for clients that do not read",
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
            "immediate end, exit code not 0, no process left",
            (f"{_PROCESSES}::test_a_second_signal_ends_it_at_once",),
        ),
        Row(
            "rolling restart of two gateways",
            RETRY,
            f"{NOTHING_LOST}; the fleet's quota is unchanged",
            ("faults/test_rolling_restart.py::test_no_application_notices",),
        ),
        Row(
            "one of several gateways on one port killed, stopped (SIGSTOP), or drained",
            "killed: reconnect; stopped: its share of new connections waits; drained: nothing",
            f"{NOTHING_LOST}; a drain resets no connection being established",
            (
                "kafka/test_reuse_port.py::test_a_drain_resets_nobody_and_what_is_killed_or_stands_still_does",
                "kafka/test_reuse_port.py::test_connections_are_dealt_to_all_of_them",
            ),
        ),
        Row(
            "a cold start with thousands of running producers",
            "nothing",
            "grace: no id is refused or charged, up to ten times the rate",
            (
                f"{_RESTART}::test_three_thousand_running_producers_are_switched_over",
                f"{_RESTART}::test_a_grace_that_began_only_because_the_topic_could_not_be_read_ends_when_it_can",
            ),
        ),
        Row(
            "a start before a topic of a million events",
            "nothing; traffic passes meanwhile, and ids are noted",
            "ready within 15 s of CPU",
            (f"{_RESTART}::test_ready_within_15_s_with_a_million_events_and_forwarding_meanwhile",),
        ),
    ),
    "Events topic": (
        Row(
            "its broker killed, hanging or moved; one of three away",
            "nothing",
            "events are buffered (50,000 or 64 MB) and written later; no request waits for them",
            (
                f"{_EVENTS}::test_a_killed_broker_comes_back",
                f"{_EVENTS}::test_a_broker_that_hangs_for_half_a_minute",
                f"{_EVENTS}::test_all_brokers_return_on_other_ports",
                f"{_EVENTS}::test_one_of_three_brokers_dies_and_stays_away",
                f"{_RESTART}::test_a_broker_of_the_events_topic_that_hangs_is_in_nobodys_way",
            ),
        ),
        Row(
            "slower than the events",
            "nothing",
            "as above",
            (f"{_EVENTS}::test_a_topic_that_is_slower_than_the_events_come",),
        ),
        Row(
            "never there",
            "nothing",
            "events beyond the buffer are dropped and counted",
            (f"{_EVENTS}::test_without_the_topic_events_are_dropped_when_there_is_no_more_room",),
        ),
        Row(
            "deleted, or unauthorised",
            "nothing",
            "recreated, or the log names the missing right; latency as without the fault",
            (
                f"{_EVENTS}::test_a_topic_that_is_deleted_is_made_again_and_followed_from_its_beginning",
                f"{_RESTART}::test_events_that_cannot_be_written_are_in_nobodys_way",
            ),
        ),
        Row(
            "cut off from a fleet for longer than a window",
            "nothing; each gateway allows the full rate",
            "once healed, each is charged what the others admitted, at most down to one capacity below 0",
            (f"{_FLEET}::test_a_topic_that_was_cut_for_long_and_heals_is_no_outage",),
        ),
        Row(
            "a gateway of a fleet killed",
            "at that gateway: reconnect",
            "the others name its loss and its successor; the quota over all gateways holds",
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
            "the log names it; written once there is room, and found by a restart",
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
            "decisions use the monotonic clock: no refill, nothing forgotten or charged again",
            (
                f"{_MACHINE}::test_a_wall_clock_that_jumps_both_ways_under_load_is_noticed_by_nobody",
                f"{_MACHINE}::test_a_jump_refills_nothing_and_a_restart_behind_it_forgets_nothing",
            ),
        ),
        Row(
            "no descriptor free",
            "new connections are closed; existing ones are served",
            "open_files_exhausted in the log, pidgate_open_files_exhausted_total; recovers when descriptors are free",
            (f"{_MACHINE}::test_without_a_free_descriptor_it_says_so_and_serves_on_whom_it_has",),
        ),
        Row(
            "the gateway's certificate expired",
            "new clients that verify refuse it; existing connections go on",
            "a renewed one in the same files is used without a restart",
            (
                f"{_MACHINE}::test_an_expired_certificate_keeps_out_who_comes_and_a_new_one_lets_in_without_a_restart",
                "kafka/test_tls.py::test_certificates_rotated_under_load_cost_no_connection",
            ),
        ),
        Row(
            "a broker's certificate expired, with another name or CA",
            "a closed connection",
            "no bytes are sent to it; the log names the remedy",
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
            "hours of all these faults together",
            "intended refusals only",
            "make soak fails if RSS grows by 2 MB an hour or more; the same statistic catches an injected leak",
            ("faults/test_soak.py::test_an_injected_leak_is_caught",),
        ),
        Row(
            "a reload, a drained and a killed gateway under 20,000 connections and rogues",
            "closed connections; [when all are back](../reference/sizing.md#20000-connections-for-an-hour)",
            "make crowd: nothing is lost or doubled, no user within its quota is refused, rogues are held",
            (
                "faults/test_crowd.py::test_nothing_is_lost_nobody_within_its_quota_refused_and_rogues_are_held",
            ),
        ),
    ),
    "Clients": (
        Row(
            "never read",
            "their own answers stop",
            "memory stays bounded; a slow consumer is not read ahead of",
            (
                f"{_BAD}[never reads]",
                f"{_PROXY}::test_a_thousand_clients_that_ask_and_never_read",
                f"{_PROXY}::test_a_consumer_that_reads_slowly_is_not_read_ahead_of",
            ),
        ),
        Row(
            "send one byte a second or half a frame, or announce a large one",
            "closed after 60 s plus 1 s per MiB received",
            "memory stays bounded; other clients are served",
            (f"{_BAD}[dribbles]", f"{_PROXY}::test_stalled_half_frames_and_length_bombs"),
        ),
        Row(
            "leave in mid-frame",
            "",
            "the request is neither counted nor in the log",
            (f"{_BAD}[leaves in mid frame]",),
        ),
        Row(
            "leave while muted, or before their refusal is written",
            "",
            "held requests are dropped; nothing remains",
            (f"{_BAD}[leaves while muted]", f"{_BAD}[leaves while refused]"),
        ),
        Row(
            "are refused in a transaction beyond transaction.timeout.ms",
            "a transaction error",
            "aborted as a whole: no read_committed consumer sees any of it; the next one commits",
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
