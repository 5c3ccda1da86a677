-- Rates, second level: each user's figures, from the partial sums of all buckets.

create temp table came as
select
    "user", minute_ms, minute_ms - minute_ms % 3_600_000 as hour_ms, min(first_ms) as first_ms, max(last_ms) as last_ms,
    sum(new_ids)::bigint as new_ids, sum(refused_ids)::bigint as refused_ids, sum(refusals)::bigint as refusals
from came_by_minute
group by all;

create temp table in_use as
select "user", hour_ms, minutes, sum(ids)::bigint as ids from ids_by_minutes group by all;

create temp table used as
select "user", 'hour' as unit, hour_ms as start_ms, sum(ids)::bigint as ids from in_use group by all
union all
select "user", 'day', day_ms, sum(ids)::bigint from ids_by_day group by all
union all
select "user", 'minute', minute_ms, sum(ids)::bigint
from came join in_use using ("user", hour_ms)
where (minutes >> (minute_ms // 60_000 % 60)) & 1 = 1
group by all;

create temp table happened as
select "user", 'minute' as unit, minute_ms as start_ms, new_ids, refusals from came
union all
select "user", 'hour', hour_ms, sum(new_ids)::bigint, sum(refusals)::bigint from came group by all
union all
select "user", 'day', minute_ms - minute_ms % 86_400_000 as day_ms, sum(new_ids)::bigint, sum(refusals)::bigint
from came
group by all;

-- Hours and days: all with activity. Minutes: those with a new id or a refusal.
create temp table rates_by_time as
select
    "user", unit, start_ms, coalesce(ids, 0) as ids, coalesce(new_ids, 0) as new_ids, coalesce(refusals, 0) as refusals
from used full join happened using ("user", unit, start_ms);

-- An id of several client ids counts for each of them, a new id for the one that brought it.
create temp table rates_clients as
with used as (
    select "user", client_id, sum(ids)::bigint as ids, sum(requests)::bigint as requests from clients group by all
), by_hour as (
    select "user", client_id, hour_ms, sum(new_ids)::bigint as new_ids, sum(refusals)::bigint as refusals
    from came_by_client
    group by all
), came as (
    select
        "user", client_id, sum(new_ids)::bigint as new_ids, max(new_ids) as peak_new_ids_per_hour,
        sum(refusals)::bigint as refusals
    from by_hour
    group by all
)
select
    coalesce(u."user", c."user") as "user", coalesce(u.client_id, c.client_id) as client_id,
    coalesce(ids, 0) as ids, coalesce(new_ids, 0) as new_ids,
    coalesce(peak_new_ids_per_hour, 0) as peak_new_ids_per_hour, coalesce(requests, 0) as requests,
    coalesce(refusals, 0) as refusals
from used u full join came c on u."user" = c."user" and u.client_id is not distinct from c.client_id;

-- The most that a broker holds in each hour, from the first to the last step with an id.
create temp table held_by_hour as
with changes as (
    select "user", step_ms, sum(ids) as ids, sum(states) as states from held_changes group by all
), held as (
    select
        "user", step_ms, lead(step_ms) over in_time as next_ms, sum(ids) over in_time as ids,
        sum(states) over in_time as states
    from changes
    window in_time as (partition by "user" order by step_ms)
), hours as (
    select
        "user", ids, states,
        unnest(range(step_ms - step_ms % 3_600_000, next_ms, 3_600_000)) as hour_ms
    from held
    where ids > 0
)
select "user", hour_ms, max(ids)::bigint as ids_held, max(states)::bigint as states_held from hours group by all;

-- Quantiles are exact: the least value that at least this share of the ids does not exceed.
create temp table counted as
select "user", life_ms as ms, 'lived' as what, sum(ids) as ids from ids_by_life group by all
union all
select "user", waited_ms, 'waited', sum(ids) from waits where outcome = 'admitted' group by all;

create temp table quantiles as
with ranked as (
    select
        *, sum(ids) over (partition by "user", what order by ms) as up_to,
        sum(ids) over (partition by "user", what) as total
    from counted
)
select
    "user", min(ms) filter (what = 'lived' and 100 * up_to >= 50 * total) as life_ms_p50,
    min(ms) filter (what = 'lived' and 100 * up_to >= 95 * total) as life_ms_p95,
    min(ms) filter (what = 'waited' and 100 * up_to >= 50 * total) as waited_ms_p50,
    min(ms) filter (what = 'waited' and 100 * up_to >= 95 * total) as waited_ms_p95
from ranked
group by all;

-- Shares and means are computed once, from whole sums. Percentiles of new ids per hour are interpolated linearly (as numpy's)
-- and include every hour from the user's first to its last: `quiet` ones had none, the `busy` ones are sorted.
create temp macro in_hour(place, quiet, busy) as if(place < quiet, 0, busy[place - quiet + 1]);
create temp macro per_hour(percent, hours, quiet, busy) as
    in_hour((hours - 1) * percent // 100, quiet, busy)
    + (
        in_hour(least((hours - 1) * percent // 100 + 1, hours - 1), quiet, busy)
        - in_hour((hours - 1) * percent // 100, quiet, busy)
    ) * ((hours - 1) * percent % 100) / 100;

create temp table rates_users as
with used as (
    select
        "user", sum(ids)::bigint as ids, sum(requests)::bigint as requests, min(first_ms) as first_used_ms,
        max(last_ms) as last_used_ms, sum(partitions)::bigint as partitions,
        sum(with_partitions)::bigint as ids_with_partitions
    from ids
    group by all
), decided as (
    select
        "user", min(first_ms) as first_decided_ms, max(last_ms) as last_decided_ms, sum(new_ids)::bigint as new_ids,
        sum(refused_ids)::bigint as refused_ids, sum(refusals)::bigint as refusals
    from came
    group by all
), peaks as (
    select
        "user", max(new_ids) filter (unit = 'minute') as in_minute, max(new_ids) filter (unit = 'hour') as in_hour,
        max(new_ids) filter (unit = 'day') as in_day,
        list(new_ids order by new_ids) filter (unit = 'hour' and new_ids > 0) as busy_hours
    from happened
    group by all
), gave_up as (
    select "user", sum(ids)::bigint as gave_up from waits where outcome = 'gave_up' group by all
), held as (
    select "user", max(ids_held) as ids_held, max(states_held) as states_held from held_by_hour group by all
), known as (
    select
        *, least(first_used_ms, first_decided_ms) as first_ms, greatest(last_used_ms, last_decided_ms) as last_ms,
        last_ms // 3_600_000 - first_ms // 3_600_000 + 1 as hours, coalesce(busy_hours, []) as busy,
        hours - len(busy) as quiet
    from used
    full join decided using ("user")
    full join peaks using ("user")
    full join quantiles using ("user")
    full join gave_up using ("user")
    full join held using ("user")
)
select
    "user", first_ms, last_ms, coalesce(ids, 0) as ids, coalesce(new_ids, 0) as new_ids,
    coalesce(in_minute, 0) as peak_new_ids_per_minute, coalesce(in_hour, 0) as peak_new_ids_per_hour,
    coalesce(in_day, 0) as peak_new_ids_per_day, per_hour(50, hours, quiet, busy) as new_ids_per_hour_p50,
    per_hour(95, hours, quiet, busy) as new_ids_per_hour_p95, per_hour(99, hours, quiet, busy) as new_ids_per_hour_p99,
    life_ms_p50, life_ms_p95, coalesce(requests, 0) as requests, requests / nullif(ids, 0) as requests_per_id,
    partitions / nullif(ids_with_partitions, 0) as partitions_per_id, coalesce(refusals, 0) as refusals,
    coalesce(refused_ids, 0) as refused_ids, waited_ms_p50, waited_ms_p95, coalesce(gave_up, 0) as gave_up,
    coalesce(ids_held, 0) as ids_held, coalesce(states_held, 0) as states_held
from known;
