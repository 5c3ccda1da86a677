"""Tests that only `make nightly` runs, each with what shows the same by day.

A key is a test, or the beginning of the name of its parameters.
"""

REAL_CLIENT = "another real client loses nothing by day; `make clients` runs them all"
VERSION = "the oldest Kafka; the newest runs by day, and what is decided does not depend on the broker"

WHOLE_REPORT = "every job on a history of eight days takes most of a minute; by day jobs run one at a time"

EXCHANGE = "unit/gateway/quotas/test_quota_exchange.py; test_ours_stay_here asks a broker by day"

ON_ONE_HISTORY = "test_run.py runs jobs one after another, and each is tested without Spark"

COMPILED = "compiling takes two minutes; the same tests run on the plain source by day"

CORE = "compiling for each of them takes half a minute; test_a_core_does_what_python_does has the plain build by day"

TOOLS = "tools that `make release-tools` installs; test_systemd.py and test_version.py run by day"

BY_NIGHT = {
    "deploy/test_actions.py::": TOOLS,
    "deploy/test_compose.py::test_compose_takes_the_file": TOOLS,
    "deploy/test_compose_processes.py::": "a minute of processes; test_compose.py reads their files by day",
    "deploy/test_kubernetes.py::": TOOLS,
    "deploy/test_systemd.py::test_a_gateway_makes_no_call_that_the_unit_forbids": "strace takes half a minute",
    "image/test_built_image.py::": "two roots of Debian's packages and a build; test_dockerfile.py has the steps",
    "unit/gateway/present/test_draws.py::test_a_draw_of_many_users_and_connections_is_short[large": (
        "half a minute to make 20,000 connections; the tenth of it is drawn by day"
    ),
    **dict.fromkeys(
        (
            "kafka/test_status_page.py::test_each_view_fits[1280 dark",
            "kafka/test_status_page.py::test_each_view_fits[390 light",
        ),
        "the other two of width and theme are drawn by day",
    ),
    "image/test_compiled.py::": COMPILED,
    "image/test_dockerfile.py::test_the_steps_give_a_working_command": COMPILED,
    "image/test_dockerfile.py::test_the_health_command_of_the_image_tells_a_live_gateway_from_a_dead_one": COMPILED,
    **dict.fromkeys(
        (
            "unit/simulator/test_every.py::test_nothing_is_lost_in_any_schedule[a gateway before each broker",
            "unit/simulator/test_every.py::test_nothing_is_lost_in_any_schedule[one gateway, java",
        ),
        "test_schedules.py draws fleets by day, and the small world with changes of mode has Java's producer",
    ),
    "unit/gateway/lane/test_core_against_python.py::test_a_broken_core_is_noticed": CORE,
    "unit/gateway/lane/test_core_against_python.py::test_sanitizers_find_nothing": CORE,
    "unit/gateway/lane/test_threads.py::test_under_the_thread_sanitizer": CORE,
    **dict.fromkeys(
        ("kafka/test_examples.py::", "kafka/test_example_programs.py::"),
        "a cluster of three and a minute of commands; unit/cli/test_cli.py checks each file of an example by day",
    ),
    "kafka/test_status_page.py::test_the_recorded_day_is_replayed_at_other_rates": (
        "its process gets 10 s, which may be little where all tests run; unit/cli/test_what_if.py replays by day"
    ),
    "kafka/test_what_if.py::": "thousands of requests are timed; unit/cli/test_what_if.py replays by day",
    "kafka/test_doctor.py::test_a_stopped_broker_and_a_slowed_gateway_are_told_apart": (
        "half a minute with a cluster of its own; unit/cli/test_doctor.py tells them apart by day"
    ),
    **dict.fromkeys(
        ("kafka/test_dashboards.py::test_a_panel", "kafka/test_dashboards.py::test_the_control"),
        "Prometheus is not on every machine; by day the dashboards are compared with what draws them",
    ),
    "kafka/test_who_patterns.py::": (
        "two minutes of waiting clients; unit/who/test_who_findings.py plays the same events by day"
    ),
    "kafka/test_first_hour.py::test_tutorial_word_by_word": (
        "a minute of commands; tests/unit/cli has each of them by day, and the test beside it looks without topics"
    ),
    "kafka/test_restart.py::test_the_brokers_ports_are_open_after_a_kill[neither": (
        "the control; the other two run by day"
    ),
    "unit/gateway/proxy/test_keepalive.py::test_a_peer_that_vanished_is_noticed[broker": (
        "a vanished client runs by day, and the options of both sides"
    ),
    "kafka/test_beside_brokers_quota.py::": (
        "a minute of traffic; test_waiting_for_an_account.py and the simulator's theme `accounts` hold by day"
    ),
    "kafka/test_byte_quotas.py::test_all_of_a_user_are_held_to_its_rate_and_nobody_else_is": (
        "half a minute of traffic; test_byte_throttles and test_over_both_quotas_nothing_is_lost hold by day"
    ),
    "kafka/test_client_quotas_api.py::[oldest": VERSION,
    "kafka/test_client_quotas_api.py::test_javas_admin": (
        "test_ours_stay_here_and_the_other_keys_arrive asks the same without Java"
    ),
    "kafka/test_model_cluster.py::": (
        "test_model_replayed holds the model to what real Kafka answered, test_model_connections asks it"
    ),
    "kafka/test_clients_with_faults.py::test_an_id_has_its_token_at_the_gateway_that_has_not_heard_of_it[software1": (
        "the control: a client that pays at its first batch; unit/gateway/proxy/test_clients_with_faults.py has it"
    ),
    "kafka/test_refuse_init.py::test_a_crash_loop_stops_burning_ids[False": (
        "the control: what is burnt with the setting off"
    ),
    "hostile/test_fetch.py::test_a_pipeline_of_share_fetches_is_held_to_the_rate": (
        "the same of fetches; kafka/test_byte_throttles.py asks a broker for share fetches"
    ),
    "hostile/test_fetch.py::test_a_pipeline_of_fetches_is_held_to_the_rate[behind the login": (
        "the same of a client that is logged in"
    ),
    "kafka/test_fleet.py::test_the_quota_holds_over_all_gateways[before all": (
        "the simulator holds fleets of two to the quota by day"
    ),
    "kafka/test_java_tools.py::test_a_transactional_copy_holds_everything_once[old_cluster": VERSION,
    "kafka/test_java_tools.py::test_command_line_tools[old_cluster": VERSION,
    "kafka/test_java_tools.py::test_performance_tools_write_and_read[old_cluster": VERSION,
    "kafka/test_proxy_addresses.py::test_producing_and_consuming_in_groups[java": (
        "the same with three other clients"
    ),
    "unit/quota/test_memory.py::test_live_ids_refreshed_in_every_slice": (
        "test_a_rogue_fills_its_bounds_and_no_more"
    ),
    "kafka/test_gateway_topics.py::test_it_is_in_no_list_of_topics[oldest": VERSION,
    "kafka/test_gateway_topics.py::test_its_id_is_known_soon_after_it_was_made[oldest": VERSION,
    "kafka/test_gateway_topics.py::test_asking_for_it_does_not_make_it[oldest": VERSION,
    "kafka/test_proxy_apis.py::test_the_offer_is_the_brokers_cut_to_the_table[old_cluster": (
        "unit/protocol/test_golden_frames.py has what that broker offers"
    ),
    "kafka/test_runtime_quotas.py::test_compaction_loses_nothing": "unit/gateway/quotas/test_change_log.py",
    "kafka/test_reload.py::test_a_refused_user_is_admitted_after_a_raise[signal": (
        "unit/gateway/quotas/test_reloading.py"
    ),
    "kafka/test_client_quotas_api.py::test_filters_find_ours_as_a_broker_finds_its_own": EXCHANGE,
    "kafka/test_clients_refused_3s.py::test_a_refusal_of_3_s_loses_doubles_and_reorders_nothing[aiokafka": REAL_CLIENT,
    "pipeline/test_ingest_cases.py::test_two_real_ingests_at_once": (
        "twenty times two processes; test_two_at_once_take_each_event_once has two threads by day"
    ),
    "pipeline/test_cases.py::test_all_stories_through_the_commands": (
        "ingest and run of 25,000 events; each story goes through the kernels by day, and each command by itself"
    ),
    "pipeline/test_report.py::": WHOLE_REPORT,
    "pipeline/test_run.py::test_every_job_of_the_report_has_run": WHOLE_REPORT,
    **dict.fromkeys(
        (
            "pipeline/test_rates.py::test_the_command_reads_the_days_asked_for_and_the_expiry_from_the_events[spark",
            "pipeline/test_engines.py::test_spark_finds_the_same_in_any_number_of_buckets[1",
            "pipeline/test_engines.py::test_spark_finds_the_same_in_any_number_of_buckets[64",
            "pipeline/test_engines.py::test_spark_finds_the_same_in_any_number_of_buckets[None",
        ),
        ON_ONE_HISTORY,
    ),
    **dict.fromkeys(
        (
            "pipeline/test_recommend.py::",
            "pipeline/test_recommend_forward.py::test_it_holds_for_many_users",
        ),
        "test_recommend_measured.py and test_recommend_forward.py have the same users without Spark, or fewer",
    ),
    "pipeline/test_spark_submit.py::test_jobs_run_on_a_cluster_from_the_archive_alone": (
        "a cluster of its own; test_run.py runs the jobs in this process"
    ),
    "pipeline/test_ids_of_kafka.py::test_inferred_blocks_are_those_in_the_metadata_log": (
        "test_ids.py, without Kafka"
    ),
    "pipeline/test_failover_kafka.py::test_the_job_finds_who_dies_and_the_quota_that_keeps_the_heap[spark": (
        "test_failover_cascade.py and test_failover_kip.py, without Kafka"
    ),
}


def is_by_night(test: str) -> bool:
    """Return whether only `make nightly` runs the test of this node id."""
    path, _, name = test.removeprefix("tests/").partition("::")
    parameters = name[name.find("[") :] if "[" in name else ""
    keys = (f"{path}::{name}", f"{path}::{parameters}")
    return any(key.startswith(known) for key in keys for known in BY_NIGHT)
