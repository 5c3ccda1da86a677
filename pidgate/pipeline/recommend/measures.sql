-- Recommend: the arrivals of each user in order of time, and what they say but for the costs of rates.

-- Ties are ordered by the other columns, so that the result does not depend on the order of rows.
create temp table came as
select
    "user", at_ms, coalesce(healthy, true) as is_healthy, coalesce(transactional, true) as is_transactional,
    coalesce(refusals, 0) as refusals, coalesce(address, 0) as address, coalesce(requests, 0) as requests,
    coalesce(records, 0) as records
from history
where at_ms is not null
order by "user", at_ms, is_healthy, address, requests, records;

-- Needs are asked at the end of the history, and where the days begin that judge the rates.
create temp table needs as
with horizons as (
    select unnest([getvariable('split_ms'), getvariable('end_ms')]) as until_ms
), lived as (
    -- A producer that lived for more than an hour is an instance, rather than a part of its work.
    select "user", first_ms, last_ms from history where coalesce(healthy, true) and last_ms - first_ms > 3_600_000
), moments as (
    select "user", first_ms as ms, 1 as begins, 0 as ends from lived
    union all
    select "user", last_ms, 0, 1 from lived
), in_use as (
    select
        "user", ms,
        sum(begins) over (partition by "user" order by ms range between unbounded preceding and current row)
        - coalesce(
            sum(ends) over (partition by "user" order by ms range between unbounded preceding and 1 preceding), 0
        ) as alive
    from moments
    qualify begins = 1
), addresses as (
    -- Of a rogue in one window: its instances, as far as they can be told.
    select "user", until_ms, count(distinct address) as addresses
    from came join horizons on at_ms < until_ms
    where not is_healthy
    group by "user", until_ms, at_ms // getvariable('window_ms')
), by_day as (
    select "user", until_ms, (at_ms - until_ms + 14 * 86_400_000) // 86_400_000 as day, count(*) as ids
    from came join horizons on at_ms < until_ms and at_ms >= until_ms - 14 * 86_400_000
    where is_healthy and until_ms - getvariable('begin_ms') >= 14 * 86_400_000
    group by all
), weeks as (
    -- The median of seven days, so that one deployment is no growth.
    select
        "user", until_ms, coalesce((list(ids order by ids desc) filter (day < 7))[4], 0) as before,
        coalesce((list(ids order by ids desc) filter (day >= 7))[4], 0) as after
    from by_day
    group by all
), most as (
    select "user", until_ms, max(alive) as instances, 1 as growth
    from in_use join horizons on ms < until_ms
    group by all
    union all
    select "user", until_ms, max(addresses), 1 from addresses group by all
    union all
    select "user", until_ms, 0, if(before >= 5, least(2, greatest(1, after / before)), 1) from weeks
)
select
    "user", max(instances) filter (until_ms = getvariable('end_ms')) as instances,
    max(growth) filter (until_ms = getvariable('end_ms')) as growth,
    max(instances) filter (until_ms = getvariable('split_ms')) as instances_before,
    max(growth) filter (until_ms = getvariable('split_ms')) as growth_before
from most
group by all;

-- The weekday (0 is Monday) with far more healthy ids than a usual day, if another week has a day like the fullest at the same
-- place. `others`: all other weekdays, of which `ids` are those with healthy ids.
create temp table peaks as
with by_day as (
    select "user", at_ms // 86_400_000 - getvariable('begin_ms') // 86_400_000 as day, count(*) as ids
    from came
    where is_healthy and at_ms >= getvariable('begin_ms') and at_ms < getvariable('end_ms')
    group by all
), most as (
    select *, max(ids) over (partition by "user") as most from by_day
), fullest as (
    select *, min(day) filter (ids = most) over (partition by "user") as fullest from most
), compared as (
    select
        "user", fullest, most, count(*) filter (day % 7 = fullest % 7 and 2 * ids >= most) as weeks,
        (getvariable('end_ms') - 1) // 86_400_000 - getvariable('begin_ms') // 86_400_000 + 1 as days,
        days - (days - fullest % 7 + 6) // 7 as others,
        list(ids order by ids desc) filter (day % 7 <> fullest % 7) as ids
    from fullest
    group by all
)
-- Day 0 of the epoch was a Thursday.
select "user", (getvariable('begin_ms') // 86_400_000 + fullest + 3) % 7 as peak_weekday, weeks as peak_weeks
from compared
where weeks >= 2 and most >= 20
    and most >= 3 * (coalesce(ids[(others + 1) // 2], 0) + coalesce(ids[(others + 2) // 2], 0)) / 2;

create temp table measures as
with summed as (
    select
        "user", count(*) as ids, count(*) filter (not is_healthy) as rogue_ids,
        count(*) filter (not is_healthy and is_transactional) as rogue_transactional_ids,
        sum(refusals) filter (is_healthy)::bigint as healthy_refusals, sum(requests)::bigint as requests,
        sum(records)::bigint as records, max(at_ms) filter (not is_healthy) as rogue_last_ms,
        count(*) filter (at_ms >= week_ms and at_ms < getvariable('end_ms')) as ids_last_week,
        count(*) filter (at_ms >= week_ms - 7 * 86_400_000 and at_ms < week_ms) as ids_week_before
    from (select *, getvariable('end_ms') - 7 * 86_400_000 as week_ms from came)
    group by all
), users as (
    select "user", coalesce(avg(partitions), 1) as partitions_per_id from history group by all
)
select
    * replace (
        coalesce(ids, 0) as ids, coalesce(rogue_ids, 0) as rogue_ids,
        coalesce(rogue_transactional_ids, 0) as rogue_transactional_ids,
        coalesce(healthy_refusals, 0) as healthy_refusals, coalesce(requests, 0) as requests,
        coalesce(records, 0) as records, coalesce(ids_last_week, 0) as ids_last_week,
        coalesce(ids_week_before, 0) as ids_week_before, coalesce(peak_weeks, 0) as peak_weeks,
        coalesce(instances, 0)::bigint as instances, coalesce(growth, 1)::double as growth,
        coalesce(instances_before, 0)::bigint as instances_before, coalesce(growth_before, 1)::double as growth_before
    )
from users
left join summed using ("user")
left join needs using ("user")
left join peaks using ("user")
order by "user";
