-- Clocks of gateways against the broker's (clocks.py): those known, and the events of a batch.
create temp table clocks as
with events as (
    select
        gateway_id::varchar as gateway_id, incarnation::varchar as incarnation,
        append_time_ms - append_time_ms % 3_600_000 as hour_ms, append_time_ms - wall_time_ms as offset_ms
    from arrived
    where reason is null
), batch as (
    select
        gateway_id, incarnation, hour_ms, list(offset_ms order by offset_ms)[1 + (count(*) - 1) // 10] as offset_ms,
        count(*) as events
    from events
    group by all
), hours as (
    select gateway_id, incarnation, hour_ms, min(offset_ms) as offset_ms, sum(events)::bigint as events, max(is_new) as is_new
    from (
        select gateway_id, incarnation, hour_ms, offset_ms, events, false as is_new from known
        union all
        select *, true from batch
    )
    group by all
), compared as (
    select
        *, max(hour_ms) over (partition by gateway_id, incarnation) as newest_ms,
        min(offset_ms) over (
            partition by gateway_id, incarnation, hour_ms is null order by hour_ms
            range between 5 * 3_600_000 preceding and current row
        ) as least_ms
    from hours
), kept as (
    select gateway_id, incarnation, hour_ms, offset_ms, if(abs(least_ms) > 60_000, least_ms, 0) as applied_ms, events
    from compared
    where hour_ms is null or applied_ms <> 0 or hour_ms > newest_ms - 6 * 3_600_000
    qualify row_number() over (partition by hour_ms is null order by hour_ms desc, is_new desc) <= getvariable('most_clocks')
)
from kept order by hour_ms nulls last, gateway_id, incarnation;

create temp table shifts as
select place, applied_ms
from arrived join clocks
    on clocks.gateway_id = arrived.gateway_id::varchar and clocks.incarnation = arrived.incarnation::varchar
    and clocks.hour_ms = append_time_ms - append_time_ms % 3_600_000
where reason is null and applied_ms <> 0;
