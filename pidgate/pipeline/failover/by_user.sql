-- Failover, second level: ids and states (in thousandths) that each user makes brokers hold in each hour. A broker keeps a
-- state from the id's first batch until producer.id.expiration.ms after its last write. Refused ids count too, as in a past
-- without quotas. Ids used for longer than an hour are counted separately (long_...): they are a deployment's regular
-- producers, and a sensible quota would not have refused them.
create temp table failover_past as
with lives as (
    select
        "user", topic, first_hour_ms, used_hour_ms, gone_hour_ms, is_long, sum(ids)::bigint as ids,
        sum(reported)::bigint as reported, sum(states)::bigint as states
    from lives_by_hour
    group by all
), typical as (
    select "user", coalesce(1_000 * sum(states) // nullif(sum(reported), 0), 1_000)::bigint as of_one from lives group by all
), hours as (
    select
        "user", topic, is_long, used_hour_ms, ids, 1_000 * states + (ids - reported) * of_one as states,
        unnest(range(first_hour_ms, gone_hour_ms + 1, 3_600_000)) as hour_ms
    from lives join typical using ("user")
), summed as (
    select
        "user", topic, hour_ms, sum(if(is_long, ids, 0))::bigint as long_ids,
        sum(if(is_long, states, 0))::bigint as long_states, sum(if(is_long, 0, ids))::bigint as short_ids,
        sum(if(is_long, 0, states))::bigint as short_states,
        sum(if(hour_ms <= used_hour_ms, ids, 0))::bigint as active_ids,
        sum(if(hour_ms <= used_hour_ms, states, 0))::bigint as active_states
    from hours
    group by all
)
select
    *, sum(short_ids) over of_user::bigint as user_short_ids, sum(active_ids) over of_user::bigint as user_active_ids,
    sum(long_ids + short_ids) over of_user::bigint as user_ids
from summed
window of_user as (partition by "user", hour_ms);
