-- Rates, first level: what a bucket of producer ids adds to each user's figures.

-- Use of an id: admitted with a batch, or in an id_usage event between its first and last request.
create temp table stretches as
select
    "user", client_id, producer_id, wall_time_ms as first_ms, wall_time_ms as last_ms, 0 as requests,
    null::bigint as partitions
from decision
where decision = 'admit' and reason <> 'inherited' and producer_id >= 0
union all
select "user", client_id, producer_id, first_ms, last_ms, requests, partitions from usage;

create temp table in_hours as
select "user", producer_id, last_ms - last_ms % 3_600_000 as hour_ms, greatest(first_ms, hour_ms) as first_ms, last_ms
from stretches
union all
select
    "user", producer_id, first_ms - first_ms % 3_600_000 as hour_ms, first_ms, hour_ms + 3_599_999 as last_ms
from stretches
where first_ms // 3_600_000 < last_ms // 3_600_000;

-- One row per id and hour of use. Bit n of minutes: in use in minute n.
create temp table hours as
select
    "user", producer_id, hour_ms, min(first_ms) as first_ms, max(last_ms) as last_ms,
    bit_or((2 << (last_ms // 60_000 % 60)) - (1 << (first_ms // 60_000 % 60))) as minutes
from in_hours
group by all;

create temp table lives as
select
    "user", producer_id, min(first_ms) as first_ms, max(last_ms) as last_ms, sum(requests)::bigint as requests,
    max(partitions) as partitions
from stretches
group by all;

-- From here on: partial sums.

create temp table ids as
select
    "user", count(*) as ids, sum(requests)::bigint as requests, min(first_ms) as first_ms, max(last_ms) as last_ms,
    sum(partitions)::bigint as partitions, count(partitions) as with_partitions
from lives
group by all;

create temp table ids_by_life as
select "user", last_ms - first_ms as life_ms, count(*) as ids from lives group by all;

create temp table ids_by_minutes as
select "user", hour_ms, minutes, count(*) as ids from hours group by all;

create temp table ids_by_day as
select "user", day_ms, count(*) as ids
from (select distinct "user", producer_id, hour_ms - hour_ms % 86_400_000 as day_ms from hours)
group by all;

create temp table clients as
select "user", client_id, count(*) as ids, sum(requests)::bigint as requests
from (select "user", client_id, producer_id, sum(requests) as requests from stretches group by all)
group by all;

-- A new id counts at its first admission, a refused id at its first sight. refusals: all, also of batches without an id.
create temp table came as
select
    "user", client_id, coalesce(first_admitted_ms, at_ms) as at_ms, (first_admitted_ms is not null)::bigint as new_ids,
    1 - new_ids as refused_ids, 0 as refusals
from arrivals
union all
select "user", client_id, wall_time_ms, 0, 0, 1 from decision where decision = 'refuse';

create temp table came_by_minute as
select
    "user", at_ms - at_ms % 60_000 as minute_ms, min(at_ms) as first_ms, max(at_ms) as last_ms,
    sum(new_ids)::bigint as new_ids, sum(refused_ids)::bigint as refused_ids, sum(refusals)::bigint as refusals
from came
group by all;

create temp table came_by_client as
select
    "user", client_id, at_ms - at_ms % 3_600_000 as hour_ms, sum(new_ids)::bigint as new_ids,
    sum(refusals)::bigint as refusals
from came
group by all;

-- What a broker holds of an id: from the step of its first use to the step in which its last use expires, once per
-- stay (uses no further apart than the expiry). A step is the brokers' check interval. One state per partition;
-- an id without an id_usage event counts as one.
create temp table held_changes as
with marked as (
    select
        "user", producer_id, first_ms, last_ms + getvariable('expiry_ms') as gone_ms,
        coalesce(first_ms > lag(gone_ms) over in_time, true) as begins,
        coalesce(lead(first_ms) over in_time > gone_ms, true) as ends
    from hours
    window in_time as (partition by producer_id, "user" order by hour_ms)
), changed as (
    select "user", producer_id, first_ms - first_ms % 600_000 as step_ms, 1 as change from marked where begins
    union all
    select "user", producer_id, gone_ms - gone_ms % 600_000 + 600_000, -1 from marked where ends
)
select
    "user", step_ms, sum(change)::bigint as ids, sum(change * coalesce(partitions, 1))::bigint as states
from changed join lives using ("user", producer_id)
group by all;

create temp table waits as
select "user", outcome, waited_ms, count(*) as ids from refusal_outcome group by all;
