"""What holds each row of SECURITY.md's Limits: tests that go beyond it, or that take it away and notice."""

from __future__ import annotations

from typing import Final

_PROXY: Final = "tests/unit/gateway/proxy/test_"
_CHANNEL: Final = f"{_PROXY}client_channel.py::"
_CONNECTIONS: Final = f"{_PROXY}connection_quotas.py::"
_TLS: Final = f"{_PROXY}tls_connections.py::"
_QUOTA: Final = "tests/unit/quota/test_"
_PROTOCOL: Final = "tests/unit/protocol/test_"
_SERVER: Final = "tests/unit/gateway/process/test_server.py::"

_LIMITS: Final[dict[str, tuple[str, ...]]] = {
    "limits.frame": (f"{_CHANNEL}test_the_limit_itself_may_be_reached",),
    "a frame before and in a login": (
        f"{_CHANNEL}test_a_large_login_is_refused_by_its_head_whenever_it_comes",
        "tests/unit/gateway/cluster/test_authentication.py::test_before_the_login_a_frame_is_small",
    ),
    "limits.buffered_total": (
        f"{_CHANNEL}test_half_frames_hold_no_more_than_the_budget",
        f"{_PROXY}giving_way.py::test_a_mutant_that_lets_every_stranger_wait_is_noticed",
    ),
    "time for a frame to arrive": (f"{_CHANNEL}test_mutants_of_the_deadline_are_noticed",),
    "time to send a first request and to log in": (f"{_SERVER}test_who_asks_nothing_is_closed_in_time",),
    "limits.idle": (f"{_CHANNEL}test_a_muted_client_may_be_idle_for_too_long_as_well",),
    "time for a broker to accept a connection": (f"{_SERVER}test_a_broker_that_never_accepts_times_out",),
    "limits.connections": (
        f"{_CONNECTIONS}test_where_all_are_taken_the_oldest_without_a_claim_gives_way",
        f"{_SERVER}test_who_finds_all_connections_taken_waits_and_is_served",
    ),
    "new connections": (f"{_CONNECTIONS}test_a_mutant_that_never_pauses_is_noticed",),
    "limits.connections_per_user": (f"{_CONNECTIONS}test_mutants_of_counting_users_are_noticed",),
    "limits.connections_rate_per_user": (
        f"{_CONNECTIONS}test_a_user_whose_connections_come_too_fast_waits_for_a_while",
    ),
    "limits.connections_per_address": (
        f"{_CONNECTIONS}test_addresses_are_bounded_only_where_that_is_written",
    ),
    "time for a TLS handshake": (f"{_TLS}test_a_handshake_has_its_time",),
    "TLS handshakes in progress": (f"{_CONNECTIONS}test_a_mutant_that_bounds_no_handshakes_is_noticed",),
    "TLS records in a row that carry no data": (
        f"{_PROXY}tls_transport.py::test_a_mutant_that_feeds_small_records_as_they_come_is_noticed",
        f"{_PROXY}tls_transport.py::test_mutants_of_what_records_without_data_cost_are_noticed",
    ),
    "bytes announced by large requests that are passed on as they come": (
        f"{_PROXY}passing_on.py::test_so_is_one_without_room_for_its_length",
    ),
    "a PROXY header": (f"{_PROTOCOL}proxy_header.py::test_what_is_no_header_is_told_by_its_first_bytes",),
    "producer ids in one Produce": (
        f"{_PROXY}ids_per_request.py::test_more_than_eight_ids_close_the_connection",
    ),
    "iterations of SCRAM in the gateway's own logins": (
        "tests/unit/load/test_load.py::test_a_broker_that_does_not_know_the_password_is_not_believed",
    ),
    "quotas.producer_ids.max_live_ids": (
        f"{_QUOTA}filter_budget.py::test_no_user_takes_the_memory_of_another",
    ),
    "ids of a user in the queue": (
        f"{_QUOTA}retry_queue.py::test_a_full_queue_leaves_further_ids_outside",
        f"{_QUOTA}retry_queue.py::test_a_full_queue_makes_room_for_a_shorter_lane",
    ),
    "refusal entries": (
        f"{_QUOTA}sticky.py::test_a_users_table_is_bounded_and_nobody_elses",
        f"{_QUOTA}sticky_notes.py::test_a_connection_has_no_more_entries_than_end_in_a_turn",
    ),
    "topics and partitions of a Produce, or of a request that adds to a transaction; batches of a Produce": (
        f"{_PROTOCOL}produce.py::test_a_request_has_a_bounded_number_of_partitions_batches_and_old_messages",
        f"{_PROXY}transaction_parts.py::test_one_that_names_too_much_to_be_answered_ends_the_connection",
    ),
    "messages of the formats before Kafka 0.11 in a Produce": (
        f"{_PROTOCOL}produce.py::test_a_request_has_a_bounded_number_of_partitions_batches_and_old_messages",
    ),
    "a topic's name": (f"{_PROTOCOL}produce.py::test_a_topic_has_a_name_that_kafka_takes",),
    "entries, entities and operations of an AlterClientQuotas that sets producer_ids_rate or transactional_ids_rate; "
    "filters of a DescribeClientQuotas": (
        "tests/unit/gateway/quotas/test_quota_exchange.py::"
        "test_more_than_that_is_not_even_read_unless_it_is_the_brokers_alone",
    ),
    "elements of a request that is decoded": (
        f"{_PROTOCOL}messages.py::test_long_frames_do_not_reach_the_codec",
        f"{_PROXY}gateway_topics.py::test_who_asks_for_thousands_of_things_with_it_gets_no_long_answer",
    ),
    "a request in which such a name, or producer_ids_rate, is looked for": (
        f"{_PROXY}gateway_topics.py::test_a_request_too_large_to_be_looked_into_is_closed_for_the_name_only",
        "tests/unit/gateway/quotas/test_quota_exchange.py::test_a_request_has_a_length_that_can_be_searched",
    ),
    "brokers in a Metadata answer; APIs in an ApiVersions answer; brokers at the end of a Fetch answer": (
        f"{_PROXY}work_per_turn.py::test_what_is_read_at_once_is_bounded",
        f"{_PROTOCOL}fetch.py::test_memory_is_bounded_after_the_records",
    ),
    "partitions of a refusal with its sentence": (
        f"{_PROTOCOL}produce.py::test_the_sentence_of_a_refusal_is_not_said_for_ever",
    ),
    "requests handled in one turn": (f"{_PROXY}work_per_turn.py::test_without_turns_it_is_noticed",),
    "a PLAIN or SCRAM token": (f"{_PROTOCOL}sasl.py::test_a_token_that_is_too_long_ends_the_connection",),
    "a client id, user or transactional id that is kept": (
        f"{_PROXY}refuse_init.py::test_what_is_kept_of_a_long_name_is_bounded_and_two_names_stay_two",
        f"{_PROXY}refuse_init.py::test_a_long_client_id_is_bounded_where_it_enters",
    ),
    "users with a state of their own": (
        f"{_QUOTA}many_names.py::test_a_mutant_with_room_for_everybody_is_noticed",
    ),
    "ids that are watched for five minutes after a refusal": (
        f"{_QUOTA}many_names.py::test_of_all_watched_ids_a_user_leaves_as_many_to_others",
        f"{_QUOTA}sticky.py::test_the_ids_watched_of_one_user_are_bounded",
    ),
    "partitions of watched ids that something went to; in which a refused batch was cut off": (
        f"{_QUOTA}sticky_notes.py::test_a_mutant_that_forgets_nothing_is_noticed",
        f"{_QUOTA}sticky_notes.py::test_of_all_notes_a_user_leaves_as_many_to_others",
    ),
    "held beginnings": (
        f"{_QUOTA}held_beginnings.py::test_no_entry_is_lost_for_want_of_room",
        f"{_QUOTA}held_beginnings.py::test_a_user_without_room_delays_no_other",
    ),
    "log lines that a client can cause": (
        "tests/unit/gateway/test_log_limit.py::test_a_line_without_limit_is_noticed",
    ),
}

LIMITS_HELD_BY: Final = {f"Limits: {limit}": tests for limit, tests in _LIMITS.items()}
