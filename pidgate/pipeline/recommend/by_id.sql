-- Recommend, first level: each arrival with its health and traffic, and what was seen of each user on each day.

-- An id that is older than the history has no at_ms. The traffic of an id belongs to its first arrival. healthy: by the labels,
-- else by the places of harmful findings; null: not known to be harmful. address: a hash, of a rogue alone.
create temp table history as
with came as (
    select *, row_number() over (partition by producer_id, "user" order by at_ms) as number
    from arrivals
    where "user" <> ''
), used as (
    select
        "user", producer_id, min(first_ms) as first_ms, max(last_ms) as last_ms, sum(requests)::bigint as requests,
        sum(records)::bigint as records, max(partitions) as partitions, 1 as number
    from (
        select "user", producer_id, first_ms, last_ms, requests, records, partitions from usage
        union all
        select "user", producer_id, wall_time_ms, wall_time_ms, null, null, null
        from decision
        where decision = 'admit' and producer_id >= 0
    )
    where "user" <> ''
    group by all
), labels as (
    select "user", producer_id, bool_and(healthy) as healthy from labels_ids group by all
), judged as (
    select came.*, if(is_harmful, false, labels.healthy) as healthy
    from came
    left join labels using ("user", producer_id)
    left join harmful
        on harmful."user" = came."user" and harmful.client_id = coalesce(came.client_id, '')
        and harmful.address = coalesce(came.address, '')
)
select
    "user", at_ms, healthy, transactional, refusals, if(not healthy, (hash(address) >> 1)::bigint, null) as address, requests,
    records, partitions, first_ms, last_ms
from judged full join used using ("user", producer_id, number);

-- By day, client software and topic. A client refused before it had an id may have been healthy.
create temp table seen as
select
    "user", wall_time_ms // 86_400_000 as day, nullif(concat_ws(' ', nullif(software_name, ''), nullif(software_version, '')), '')
        as client,
    if(decision = 'admit', nullif(topic, ''), null) as topic, min(wall_time_ms) as first_ms, max(wall_time_ms) as last_ms,
    count(*) as decisions, count(*) filter (decision = 'refuse' and producer_id < 0) as unnamed_refusals
from decision
where "user" <> ''
group by all
union all
select distinct
    "user", wall_time_ms // 86_400_000, null::varchar, null::varchar, null::bigint, null::bigint, 0, 0
from id_usage
where "user" <> '';

create temp table extent as
select day, min(first_ms) as first_ms, max(last_ms) as last_ms from seen group by all;
