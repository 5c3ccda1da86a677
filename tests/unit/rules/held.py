"""What holds each rule that no schedule of the simulator notices the breach of, and no mutant of this folder.

`HELD_BY`: tests that break the rule and notice it, or that make the attack it guards against. `REASONS`: why there is
none.
"""

from __future__ import annotations

from typing import Final

_PROXY: Final = "tests/unit/gateway/proxy/test_"
_QUOTA: Final = "tests/unit/quota/test_"
_RULES: Final = f"{_QUOTA}mutants.py::test_a_broken_rule_is_noticed"

HELD_BY: Final[dict[str, tuple[str, ...]]] = {
    # docs/architecture.md
    "Identity first: What a client may choose around its name or token": (
        "tests/kafka/test_readings.py::test_a_reader_that_keeps_what_kafka_drops_is_noticed",
        "tests/kafka/test_readings.py::test_bearer_tokens_are_found_where_kafka_finds_them",
        "tests/hostile/test_login.py::test_attack",
    ),
    "Identity first: a name, once read, stays": (
        f"{_PROXY}sasl_users.py::test_a_mutant_that_lets_a_name_be_dropped_is_noticed",
    ),
    "Identity first: nothing but ApiVersions and SASL passes before the login": (
        f"{_PROXY}conversation.py::test_a_listener_that_let_them_pass_would_be_noticed",
    ),
    "Bytes: What is not understood": (
        "tests/unit/protocol/test_addresses.py::test_what_cannot_be_walked_is_never_passed",
        "tests/fuzz/test_target.py::test_a_decoder_that_reads_another_epoch_is_noticed",
    ),
    "Bytes: Unknown tagged fields": (
        "tests/unit/protocol/test_addresses.py::test_unknown_tags_survive",
        "tests/unit/protocol/test_messages.py::test_unknown_tags_survive_the_cut",
        "tests/unit/protocol/test_metadata.py::test_unknown_tags_of_a_broker_survive",
    ),
    "Versions: Offered is the broker's range": (
        "tests/unit/protocol/test_versions.py::test_a_gained_version_and_a_gained_api_would_be_noticed",
    ),
    "Versions: An API that could make producer state": (
        f"{_PROXY}apis_table.py::test_one_that_is_left_out_would_be_noticed",
        f"{_PROXY}transaction_parts.py::test_mutant_one_that_merely_passes_makes_state_for_free",
    ),
    "Memory: Small frames have a half of their own": (
        f"{_PROXY}client_channel.py::test_a_mutant_without_a_half_for_small_frames_is_noticed",
    ),
    "Memory: a user holds at most what is left to others": (
        f"{_PROXY}buffers.py::test_a_mutant_without_shares_is_noticed",
    ),
    "Memory: one that does not come in its time": (
        f"{_PROXY}client_channel.py::test_mutants_of_the_deadline_are_noticed",
    ),
    "Work per turn: counts are compared with a bound": (
        f"{_PROXY}work_per_turn.py::test_a_limit_that_is_raised_is_noticed",
    ),
    "Work per turn: an answer gives way": (
        f"{_PROXY}work_per_turn.py::test_an_answer_that_is_walked_in_one_turn_is_noticed",
    ),
    "Work per turn: of one read 512 frames": (f"{_PROXY}work_per_turn.py::test_without_turns_it_is_noticed",),
    "Work per turn: 150 new producer ids": (
        f"{_PROXY}work_per_turn.py::test_new_ids_without_turns_are_noticed",
    ),
    "Work per turn: elements that are looked at": (
        f"{_PROXY}work_per_turn.py::test_dear_requests_of_one_read_without_turns_are_noticed",
        f"{_PROXY}work_per_turn.py::test_dear_requests_that_were_held_go_on_in_turns",
    ),
    "Work per turn: Log lines that a client can cause": (
        "tests/unit/gateway/test_log_limit.py::test_a_line_without_limit_is_noticed",
    ),
    "Blame: A broker is dialled for the first bytes that are for it": (
        f"{_PROXY}client_channel.py::test_a_mutant_that_dials_when_it_accepts_is_noticed",
    ),
    "Blame: With TLS a connection counts from its acceptance": (
        f"{_PROXY}connection_quotas.py::test_a_mutant_that_bounds_no_handshakes_is_noticed",
        "tests/hostile/test_tls.py::test_handshakes_that_never_end_keep_nobody_out",
    ),
    "One state: once": (f"{_RULES}[ChargesWhatIsHeld]",),
    "One store: what it says replaces what was in force as a whole": (
        "tests/unit/gateway/quotas/test_reloading.py::test_a_bad_file_changes_nothing_and_says_so",
    ),
    "One store: The order of changes is the order of the topic": (
        "tests/unit/gateway/quotas/test_change_log.py::test_another_order_would_be_noticed",
        "tests/kafka/test_runtime_quotas.py::test_an_order_by_clocks_would_be_noticed",
    ),
    "Bytes are never refused: what has arrived is forwarded": (
        f"{_PROXY}bytes_on_a_connection.py::"
        "test_a_produce_above_the_rate_passes_then_mutes_and_its_answer_says_so",
    ),
    "Bytes are never refused: a Fetch leaves when the answer before has told its size": (
        f"{_PROXY}bytes_on_a_connection.py::test_a_fetch_that_did_not_wait_would_be_noticed",
    ),
    "Events are in nobody's way: `publish` appends to a bounded store and returns": (
        "tests/unit/gateway/state/test_record_accumulator.py::test_the_newest_is_dropped_when_there_are_too_many",
        "tests/unit/gateway/state/test_record_accumulator.py::test_bytes_are_bounded_too",
    ),
    "Events are in nobody's way: `seq` shows the gap": (
        "tests/unit/gateway/recording/test_recorder.py::"
        "test_a_lost_event_leaves_a_gap_and_one_that_was_never_made_does_not",
    ),
    # SECURITY.md
    "The quota is the user's: nobody stays": (
        "tests/hostile/test_login.py::test_on_a_listener_with_authentication_nobody_is_anonymous",
    ),
    "What one spends another still has: Filters": (
        f"{_QUOTA}filter_budget.py::test_no_user_takes_the_memory_of_another",
    ),
    "What one spends another still has: tokens of the cluster": (
        f"{_QUOTA}two_uses.py::test_who_is_never_refused_leaves_the_clusters_tokens_to_the_others",
    ),
    "What one spends another still has: turns of the retry queue": (
        f"{_QUOTA}retry_queue.py::test_1200_rogue_ids_do_not_keep_a_healthy_process_out",
    ),
    "What one spends another still has: memory for frames": (
        f"{_PROXY}buffers.py::test_a_mutant_without_shares_is_noticed",
    ),
    "Nothing is read twice in two ways: Numbers, strings and headers have one reader": (
        "tests/unit/protocol/test_frames.py::test_varints_are_read_in_one_place",
        "tests/kafka/test_readings.py::test_varints_are_read_as_kafka_reads_them",
    ),
    "Nothing is read twice in two ways: "
    "Where the brokers would read a topic of the gateway's own, so does the gateway": (
        "tests/kafka/test_readings.py::test_a_reader_that_keeps_what_kafka_drops_is_noticed",
        "tests/hostile/test_own_topics.py::test_a_broker_reads_such_a_name",
    ),
    "Work is bounded for each turn of the event loop: Tests count the steps": (
        f"{_PROXY}work_per_turn.py::test_a_limit_that_is_raised_is_noticed",
        "tests/hostile/test_frame.py::test_a_busy_loop_is_noticed",
    ),
    "Memory is bounded: before the login": (
        f"{_PROXY}client_channel.py::test_a_mutant_to_whom_a_login_is_as_good_as_done_is_noticed",
    ),
    "Memory is bounded: What is made of a request": (
        f"{_PROXY}memory_per_byte.py::test_objects_that_are_made_of_every_byte_are_noticed",
    ),
    "Connections are bounded: in all": (
        f"{_PROXY}connection_quotas.py::test_where_all_are_taken_the_oldest_without_a_claim_gives_way",
        f"{_PROXY}connection_quotas.py::test_a_mutant_that_bounds_no_handshakes_is_noticed",
    ),
    "Connections are bounded: for each user": (
        f"{_PROXY}connection_quotas.py::test_mutants_of_counting_users_are_noticed",
    ),
    "Connections are bounded: where a login is required, have not logged in": (
        f"{_PROXY}giving_way.py::test_a_mutant_to_whom_a_request_is_claim_enough_is_noticed",
    ),
    "Connections are bounded: rates that delay and do not close": (
        f"{_PROXY}connection_quotas.py::test_a_mutant_that_never_pauses_is_noticed",
    ),
    "Names and log lines are bounded: no table grows without an end": (
        f"{_QUOTA}many_names.py::test_a_mutant_with_room_for_everybody_is_noticed",
        f"{_QUOTA}sticky_notes.py::test_a_mutant_that_forgets_nothing_is_noticed",
        f"{_PROXY}refusal_log.py::test_no_number_of_names_makes_it_grow",
    ),
    "The admin address: to its own names only": (
        "tests/unit/gateway/admin/test_admin.py::test_a_mutant_that_answers_to_every_name_is_noticed",
    ),
    "The admin address: with a token": (
        "tests/unit/gateway/admin/test_admin_quotas.py::test_a_mutant_that_asks_for_no_token_is_noticed",
    ),
    "An error in the quota opens little: New transactional ids have the same ceiling": (
        f"{_QUOTA}fail_open.py::test_a_mutant_that_leaves_them_out_is_noticed",
    ),
    "An error in the quota opens little: InitProducerId too": (
        f"{_PROXY}refuse_init.py::test_where_the_quota_fails_it_passes_below_the_ceiling",
    ),
    # docs/rules.md
    "Mutes: What has no answer outlives its client": (
        f"{_PROXY}bytes_on_a_connection.py::test_mutants_of_a_clients_end_are_noticed",
    ),
    "What an id costs: A remembered id is never new": (
        f"{_QUOTA}layered_filter.py::test_no_false_negative_within_the_time_to_remember",
        f"{_RULES}[SlicesOfOthersAreOurs]",
    ),
    "What an id costs: False positives stay within the target": (
        f"{_QUOTA}layered_filter.py::test_false_positives_stay_within_the_target",
    ),
    "What an id costs: Either use is remembered for itself": (
        f"{_QUOTA}two_uses.py::test_a_transaction_makes_nothing_known_for_plain_use",
    ),
    "What an id costs: nothing of the cluster's": (
        f"{_QUOTA}two_uses.py::test_who_is_never_refused_leaves_the_clusters_tokens_to_the_others",
    ),
    "What an id costs: A cold start has its bound": (f"{_RULES}[GraceWithoutBound]",),
    "What an id costs: Transactional ids have a rate of their own": (
        f"{_QUOTA}transactional_ids.py::test_a_broken_rule_is_noticed",
    ),
    "Restarts and fleets: The cluster is reached when it has named its brokers": (
        "tests/unit/simulator/test_reached.py::test_one_that_is_reached_without_them_is_noticed",
    ),
    "Restarts and fleets: A time in the future counts as now": (f"{_RULES}[FutureUses]",),
    "Restarts and fleets: The newest balance counts": (f"{_RULES}[OldestTokens]",),
    "Restarts and fleets: A grace that is over stays so": (
        "tests/unit/gateway/state/test_cold_start.py::"
        "test_a_mutant_that_ends_a_grace_by_the_wall_clock_is_noticed",
    ),
    "Restarts and fleets: Told twice is charged once": (
        "tests/unit/gateway/state/test_event_applier.py::test_a_mutant_that_charges_what_is_told_twice_is_noticed",
    ),
    "Restarts and fleets: Own events are not heard": (
        "tests/unit/gateway/state/test_event_applier.py::test_own_events_are_passed_over",
    ),
    "Restarts and fleets: a refresh elsewhere is free": (f"{_RULES}[ChargesRefreshes]",),
    "Restarts and fleets: A debt has a floor": (f"{_RULES}[DebtWithoutFloor]",),
    "Restarts and fleets: An id admitted elsewhere leaves the queue": (f"{_RULES}[KeepsWaiting]",),
    "Restarts and fleets: A damaged state is a smaller one": (
        "tests/unit/gateway/state/test_state_dir_damage.py::test_any_damage_to_any_files_leads_to_a_good_state",
    ),
}

REASONS: Final[dict[str, str]] = {}
