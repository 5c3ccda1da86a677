-- Missing numbers before and between those seen, if noticed early enough. The first number of an incarnation is 1; those
-- after its last one are unknown here. A gap of an incarnation that was dropped is final.
-- retention: the topic deleted records between both sides of the gap. Gateways write `alive` every 30 s, so within a minute
-- of the topic's new start all have written.
create temp table gaps as
with after as (
    select *, lag(last_seq, 1, 0) over mine as before_seq, lag(last_ms) over mine as before_ms
    from intervals
    window mine as (partition by gateway_id, incarnation order by first_seq)
), holes as (
    select *, first_seq - before_seq::hugeint - 1 as missing from after
)
select
    gateway_id, incarnation, before_seq + 1 as first_seq, first_seq - 1 as last_seq, missing::bigint as missing,
    first_ms as noticed_ms,
    if(
        exists (
            select 1
            from losses
            where coalesce(before_ms <= resumed_ms, true) and first_ms <= resumed_ms + 60_000
        ),
        'retention', 'lost'
    ) as cause
from holes
where missing between 1 and 9_223_372_036_854_775_807 and first_ms <= getvariable('noticed_before_ms')
union all
select * from gaps_before anti join intervals using (gateway_id, incarnation)
order by all;

-- If there are more than `most_intervals`, incarnations that wrote nothing in the latest batches are dropped. No time decides
-- that: a single wrong clock would drop every gateway.
create temp table remembered as
with incarnations as (
    select gateway_id, incarnation, max(heard) as heard, count(*) as intervals from intervals group by all
), summed as (
    select *, sum(intervals) over (order by heard desc, gateway_id, incarnation) as together from incarnations
)
select intervals.*
from intervals semi join (from summed where together <= getvariable('most_intervals')) using (gateway_id, incarnation);
