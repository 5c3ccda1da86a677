-- The load of each broker in every hour until the last use, by its shares of topics. A topic without shares uses those of the unknown topic.
-- ids: those with at least one state on the broker, if an id's partitions are distributed like the topic's.
create temp table by_broker as
with summed as (
    select
        quota, topic, hour_ms, sum(ids)::bigint as ids, sum(states)::bigint as states,
        sum(storm_states)::bigint as storm_states, sum(allowance_states::hugeint)::double as allowance_states
    from loads
    group by all
), spread as (
    select
        quota, hour_ms, broker, sum(if(ids > 0, round(ids * least(1, states / ids * share)), 0)::bigint)::double as ids,
        sum(round(states * share)::bigint)::double as states, sum(round(storm_states * share)::bigint)::double as storm_states,
        sum(round(allowance_states * share)::hugeint)::double as allowance_states
    from summed
    join shares on shares.topic = if(summed.topic in (select topic from shares), summed.topic, '')
    group by all
), every as (
    select quota, hour_ms, broker
    from (select distinct quota from spread)
    cross join (select distinct broker from spread)
    cross join (
        select unnest(range(min(hour_ms), getvariable('last_used_ms') + 1, 3_600_000)) as hour_ms from spread
    )
)
select
    quota, hour_ms, broker, coalesce(ids, 0) as ids, coalesce(states, 0) as states,
    coalesce(storm_states, 0) as storm_states, coalesce(allowance_states, 0) as allowance_states
from every left join spread using (quota, hour_ms, broker)
order by quota, hour_ms, broker;
