-- Failover, first level: ids of a bucket by their hours. A state is one (producer id, partition).

-- From arrivals (topic, first sight) and id_usage (life, partitions). The topic of an id without a decision in the history is
-- unknown. Ids that were never forwarded have no usage: they are assumed to write once, to as many partitions as the user's
-- other ids (reported). Ids are grouped before they are spread over hours, so that the cost grows with users and hours.
create temp table lives_by_hour as
with seen as (
    select "user", producer_id, arg_min(topic, at_ms) as topic, min(at_ms) as at_ms from arrivals group by all
), used as (
    select
        "user", producer_id, min(first_ms) as first_ms, max(last_ms) as last_ms,
        greatest(max(partitions), 1) as partitions
    from usage
    group by all
), lived as (
    select
        "user", coalesce(topic, '') as topic, least(first_ms, at_ms) as first_ms, greatest(last_ms, at_ms) as last_ms,
        last_ms + getvariable('expiry_ms') + 600_000 as gone_ms, partitions
    from (select "user", topic, at_ms, first_ms, coalesce(last_ms, at_ms) as last_ms, partitions
          from seen full join used using ("user", producer_id))
)
select
    "user", topic, first_ms - first_ms % 3_600_000 as first_hour_ms, last_ms - last_ms % 3_600_000 as used_hour_ms,
    gone_ms - gone_ms % 3_600_000 as gone_hour_ms, last_ms - first_ms > 3_600_000 as is_long, count(*) as ids,
    count(partitions) as reported, coalesce(sum(partitions), 0)::bigint as states
from lived
group by all;
