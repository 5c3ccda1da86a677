"""Tests that only `make nightly` runs, each with what shows the same by day.

A key is a test, or the beginning of the name of its parameters.
"""

REAL_CLIENT = "another real client loses nothing by day; `make clients` runs them all"
VERSION = "the oldest Kafka; the newest runs by day, and what is decided does not depend on the broker"

BENCH = "a load of bench/, which make bench runs; its answers are tested by test_memory.py and test_layered_filter.py"

GRACE = "unit/quota/test_grace.py and the simulator's restarts; test_after_the_grace_they_go_on_and_a_rogue_is_held"
LOADS = "another load of `pidgate load`; test_who_crashes_is_refused_at_the_quota runs by day"
PAGE = "test_the_report_names_the_rogue and test_a_name_that_is_a_script open the same page"

EXCHANGE = (
    "unit/gateway/quotas/test_quota_exchange.py; test_ours_stay_here and test_javas_admin ask a broker by day"
)
STORE = "unit/gateway/quotas/test_store.py"
CHANGE_LOG = "unit/gateway/quotas/test_change_log.py"
IN_FORCE = "test_runtime_quotas::test_a_change_made_at_one_is_in_force_at_all_soon"

ON_ONE_HISTORY = (
    "test_report.py runs every job on one history and looks at its sums; each is tested without Spark"
)

BY_NIGHT = {
    "unit/simulator/test_every.py::test_nothing_is_lost_in_any_schedule[a gateway before each broker, at": (
        "the same gateways 400 ms apart run by day, and fleets in test_schedules.py"
    ),
    "kafka/test_byte_quotas.py::test_all_of_a_user_are_held_to_its_rate_and_nobody_else_is": (
        "half a minute of traffic; test_byte_throttles and test_over_both_quotas_nothing_is_lost hold by day"
    ),
    "kafka/test_quotas_cli.py::test_with_kafka_down_each_gateway_is_told_by_itself_and_obeys_at_once": (
        "half a minute without a broker; make faults has more of it"
    ),
    "kafka/test_quotas_cli.py::test_observe_for_all_is_in_force_in_a_fleet_at_once_and_lifts_nothing_that": (
        "test_runtime_quotas::test_the_emergency_switch_reaches_all"
    ),
    "kafka/test_client_quotas_api.py::[oldest": VERSION,
    "kafka/test_client_quotas_api.py::test_kafka_configs_shows_ours_and_still_sets_its_own": (
        "test_javas_admin"
    ),
    "kafka/test_fleet.py::test_the_quota_holds_over_all_gateways[before all": (
        "the simulator holds fleets of two to the quota by day"
    ),
    "kafka/test_fleet.py::test_one_id_through_six_gateways_is_charged_once_in_each": (
        "unit/quota/test_fleet.py"
    ),
    "kafka/test_fleet.py::test_a_producer_that_writes_to_three_brokers_pays_once_and_leaders_move_for_nothing": (
        "test_the_quota_holds_over_all_gateways[sidecars]"
    ),
    "kafka/test_java_tools.py::test_a_transactional_copy_holds_everything_once[old_cluster": VERSION,
    "kafka/test_java_tools.py::test_command_line_tools[old_cluster": VERSION,
    "kafka/test_java_tools.py::test_performance_tools_write_and_read[old_cluster": VERSION,
    "kafka/test_client_drivers.py::test_a_share_group": "test_byte_throttles::test_share_fetch",
    "kafka/test_client_drivers.py::test_old_java_clients": (
        "their frames: unit/protocol/test_golden_frames.py"
    ),
    "kafka/test_sandbox.py::test_share_consumer_of_the_tools_reads": "it needs a cluster of its own",
    "kafka/test_sandbox.py::test_kafka_3_9_has_scram_users_too": VERSION,
    "kafka/test_sandbox.py::TestBreakingNodes": "it breaks a cluster of its own; make faults does more of it",
    "kafka/test_proxy_moves.py::test_a_broker_that_returns_on_a_new_port_during_load": (
        "it breaks a cluster of its own under load; make faults does more of it"
    ),
    "kafka/test_proxy_addresses.py::test_producing_and_consuming_in_groups[java": (
        "the same with three other clients"
    ),
    "kafka/test_restart.py::test_killed_five_times_and_restored_from_the_topic": (
        "faults/test_restart_faults.py"
    ),
    "kafka/test_fleet.py::test_members_that_come_go_or_differ_are_named": "unit/gateway/state/test_fleet.py",
    "kafka/test_sandbox.py::TestBreakingNodes::test_a_killed_broker_returns_on_another_port": "make faults",
    "unit/bench/test_quota_memory.py::": BENCH,
    "unit/quota/test_memory.py::test_live_ids_refreshed_in_every_slice": (
        "test_a_rogue_fills_its_bounds_and_no_more"
    ),
    "kafka/test_bench_loads.py::": BENCH,
    "kafka/test_gateway_topics.py::test_a_pattern_consumer_of_java_works_on": (
        "unit/protocol/test_gateway_topics.py"
    ),
    "kafka/test_gateway_topics.py::test_it_is_in_no_list_of_topics[oldest": VERSION,
    "kafka/test_gateway_topics.py::test_its_id_is_known_soon_after_it_was_made[oldest": VERSION,
    "kafka/test_gateway_topics.py::test_asking_for_it_does_not_make_it[oldest": VERSION,
    "kafka/test_proxy_apis.py::test_the_offer_is_the_brokers_cut_to_the_table[old_cluster": (
        "unit/protocol/test_golden_frames.py has what that broker offers"
    ),
    "kafka/test_cold_start.py::test_two_gateways_that_are_started_together_share_the_grace": GRACE,
    "kafka/test_cold_start.py::test_a_restart_in_the_middle_of_a_grace_continues_it": GRACE,
    "kafka/test_cold_start.py::test_when_the_topic_is_lost_and_nothing_else_remembers": GRACE,
    "kafka/test_cold_start.py::test_a_grace_lets_in_ten_times_the_rate_also_over_a_restart": GRACE,
    "kafka/test_refuse_init.py::test_a_storm_of_new_connections_burns_what_the_bucket_holds": (
        "unit/gateway/proxy/test_refuse_init.py"
    ),
    "kafka/test_runtime_quotas.py::test_compaction_loses_nothing": "unit/gateway/quotas/test_change_log.py",
    "kafka/test_runtime_quotas.py::test_a_rate_of_transactional_ids_that_was_set_at_run_time_is_kept": (
        "unit/quota/test_transactional_ids.py"
    ),
    "kafka/test_client_drivers.py::test_everything_is_produced_and_read_back[java": "test_java_tools.py",
    "kafka/test_client_drivers.py::test_users_log_in[java": "test_proxy_identity.py",
    "kafka/test_client_drivers.py::test_users_log_in[aiokafka": "test_proxy_identity.py",
    "kafka/test_who.py::test_permissions_and_passwords": "unit/who; test_behind_a_real_gateway",
    "kafka/test_who.py::test_an_empty_topic_says_so": "test_a_missing_topic_is_told_and_not_created",
    "kafka/test_who.py::test_one_user_and_the_top": "unit/who",
    "kafka/test_who.py::test_what_is_no_event_is_counted": "unit/who",
    "kafka/test_reload.py::test_a_refused_user_is_admitted_after_a_raise[signal": (
        "unit/gateway/quotas/test_reloading.py"
    ),
    "kafka/test_reload.py::test_tokens_keep_their_fraction": "unit/quota/test_token_bucket.py",
    "kafka/test_reload.py::test_a_bad_file_changes_nothing_and_says_so": (
        "unit/gateway/quotas/test_reloading.py"
    ),
    **dict.fromkeys(
        (
            "kafka/test_client_quotas_api.py::test_everybodys_errors_in_one_request",
            "kafka/test_client_quotas_api.py::test_errors_say_what_is_wrong",
            "kafka/test_client_quotas_api.py::test_validate_only_changes_nothing_anywhere",
            "kafka/test_client_quotas_api.py::test_who_may_see_quotas_need_not_be_allowed_to_set_them",
            "kafka/test_client_quotas_api.py::test_filters_find_ours_as_a_broker_finds_its_own",
            "kafka/test_client_quotas_api.py::test_many_quotas_with_one_request",
        ),
        EXCHANGE,
    ),
    "kafka/test_client_quotas_api.py::test_the_default_user": STORE,
    "kafka/test_client_quotas_api.py::test_what_the_file_says_can_be_taken_away_and_set": STORE,
    "kafka/test_client_quotas_api.py::test_what_the_configuration_forbids": STORE,
    "kafka/test_client_quotas_api.py::test_a_quota_holds_at_once_and_ends_at_once": IN_FORCE,
    "kafka/test_client_quotas_api.py::test_what_was_set_through_one_gateway_is_shown_by_the_others": IN_FORCE,
    "kafka/test_runtime_quotas.py::test_a_temporary_change_ends_everywhere": STORE,
    "kafka/test_runtime_quotas.py::test_what_others_write_into_the_topic_stops_nobody": CHANGE_LOG,
    "kafka/test_runtime_quotas.py::test_told_at_two_at_once_all_come_to_the_same": CHANGE_LOG,
    "kafka/test_runtime_quotas.py::test_a_late_copy_of_what_was_said_before_does_not_hold": CHANGE_LOG,
    "kafka/test_runtime_quotas.py::test_a_restart_without_a_directory_finds_all_in_the_topic": (
        "test_one_that_starts_later_knows_all_and_does_nothing_of_the_past"
    ),
    "kafka/test_load.py::test_a_gateway_that_is_killed_and_comes_back_costs_nobody_a_batch": "make faults",
    "kafka/test_load.py::test_it_logs_in": "test_proxy_identity.py",
    "kafka/test_load.py::test_a_gateway_that_stands_still_shows_in_the_latencies": LOADS,
    "kafka/test_load.py::test_who_retries_gets_everything_through_once": LOADS,
    "kafka/test_load.py::test_a_new_producer_on_each_error_burns_an_id_for_each_refusal": LOADS,
    "kafka/test_transactions_refused.py::test_who_waits_for_a_token_commits_everything[aiokafka": REAL_CLIENT,
    "kafka/test_transactions_refused.py::test_who_waits_for_a_token_commits_everything[confluent": REAL_CLIENT,
    "kafka/test_clients_refused_3s.py::test_a_refusal_of_3_s_loses_doubles_and_reorders_nothing[aiokafka": REAL_CLIENT,
    "kafka/test_demo.py::test_ctrl_c_leaves_nothing_behind": "unit/sandbox/test_guard.py",
    "kafka/test_sandbox.py::TestBreakingNodes::test_a_stopped_broker_returns_on_its_port": "make faults",
    "kafka/test_fleet.py::test_what_one_gateway_refused_another_one_that_only_observes_lets_begin_again": (
        "unit/simulator/test_every.py, by the rule `refusals elsewhere are not heard`"
    ),
    "unit/simulator/test_whole.py::test_one_seed_is_one_run_whatever_hashes_are": (
        "test_schedules.py::test_a_seed_has_one_story_whatever_hashes_are"
    ),
    "pipeline/test_report.py::test_at_night_page_and_charts_are_dark": PAGE,
    "pipeline/test_report.py::test_nothing_overflows_on_a_phone": PAGE,
    "pipeline/test_report.py::test_even_what_was_not_escaped_could_not_run": PAGE,
    "pipeline/test_report.py::test_a_users_page_opens_by_click_and_leads_back": PAGE,
    "pipeline/test_report.py::test_the_table_of_users_is_searched": PAGE,
    **dict.fromkeys(
        (
            "pipeline/test_arrivals.py::test_each_kind_of_arrival",
            "pipeline/test_offenders.py::",
            "pipeline/test_offenders_evaluation.py::",
            "pipeline/test_offenders_recordings.py::",
            "pipeline/test_rates.py::test_all_tables_are_what_duckdb_finds",
            "pipeline/test_rates.py::test_the_command_reads_the_days_asked_for_and_the_expiry_from_the_events",
            "pipeline/test_rates.py::test_a_history_of_one_refusal",
            "pipeline/test_rates.py::test_sketches_of_overlapping_days_keep_to_their_error",
            "pipeline/test_run.py::test_arrivals_are_computed_once_for_all_jobs",
            "pipeline/test_recommend.py::test_no_healthy_id_is_refused_and_the_rogue_is_held",
            "pipeline/test_recommend.py::test_the_maximum_of_history_loses",
            "pipeline/test_recommend.py::test_who_gives_no_reason_is_not_touched",
            "pipeline/test_recommend.py::test_the_file_",
            "pipeline/test_recommend.py::test_a_short_history_recommends_nothing",
            "pipeline/test_recommend.py::test_only_the_days_that_are_asked_for_count",
            "pipeline/test_recommend.py::test_filters_keep_their_promise",
        ),
        ON_ONE_HISTORY,
    ),
    **dict.fromkeys(
        (
            "pipeline/test_spark_submit.py::test_jobs_run_on_a_cluster_from_the_archive_alone",
            "pipeline/test_spark_submit.py::test_recommendations_on_a_cluster_are_those_of_this_machine",
        ),
        "a cluster of its own; test_run.py runs the jobs in this process",
    ),
    "pipeline/test_ids_of_kafka.py::test_inferred_blocks_are_those_in_the_metadata_log": (
        "test_ids.py, without Kafka"
    ),
    "pipeline/test_failover_kafka.py::test_the_job_finds_who_dies_and_the_quota_that_keeps_the_heap": (
        "test_failover_cascade.py and test_failover_kip.py, without Kafka"
    ),
}


def is_by_night(test: str) -> bool:
    """Return whether only `make nightly` runs the test of this node id."""
    path, _, name = test.removeprefix("tests/").partition("::")
    parameters = name[name.find("[") :] if "[" in name else ""
    keys = (f"{path}::{name}", f"{path}::{parameters}")
    return any(key.startswith(known) for key in keys for known in BY_NIGHT)
