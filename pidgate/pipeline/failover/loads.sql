-- The load of each topic and hour under quotas, of some users, as an upper bound in thousandths.
--
-- A quota limits a user's *new* ids. Of the ids held by a broker in an hour, those that lived at most an hour were all new
-- within (expiration + the broker's check interval + 2 hours). The bucket admitted at most rate x windows + 1 of them in that
-- time, plus the filter's false positives. So held = long-lived + least(wanted, that). Rate 0 blocks without a bucket; no rate
-- is no limit. The bound needs no replay.
--
-- storm_states: states added by one death, from clients that reopen their producers. allowance_states: states added by all
-- deaths until the buckets are empty.
create temp table loads as
with planned as (
    select
        past.*, plans.quota, if(own."user" is null, default_rate, own.rate) as rate,
        if(reopening."user" is not null or getvariable('all_reopen'), getvariable('reopens'), 0) as reopens
    from failover_past past
    cross join plans
    left join rates own on own.quota = plans.quota and own."user" = past."user"
    left join reopening on reopening."user" = past."user"
    where hour_ms <= getvariable('last_used_ms')
), limited as (
    select
        *, case when rate is null then 1e12 when rate = 0 then 0 else rate * getvariable('windows') + 1 end
            + user_short_ids * getvariable('false_positive_rate') as most,
        least(1, most / greatest(user_short_ids, 1)) as kept,
        if(reopens > 0, greatest(most - user_short_ids, 0), 0) as unspent, user_active_ids * reopens as requested
    from planned
)
select
    quota, topic, hour_ms, sum(round(1_000 * (long_ids + short_ids * kept))::bigint)::bigint as ids,
    sum(round(long_states + short_states * kept)::bigint)::bigint as states,
    sum(if(requested > 0, round(active_states * reopens * least(1, unspent / requested)), 0)::bigint)::bigint
        as storm_states,
    sum(round(unspent * (long_states + short_states) / user_ids)::hugeint)::double as allowance_states
from limited
group by all;
