-- A batch's numbers added to those of earlier batches: runs without a gap, and the records whose number was there before.
-- Of several records in a batch the first in the topic counts, readable ones preferred. Numbers have up to 64 bits.
create temp table numbered as
with every as (
    select *, -1 as place, false as is_dead, null as kafka_partition, null as kafka_offset from known
    union all
    select
        gateway_id::varchar, incarnation::varchar, seq, seq, seen_ms, seen_ms, getvariable('batch'), place,
        reason is not null, kafka_partition, kafka_offset
    from arrived
    where gateway_id is not null and incarnation is not null and seq is not null
)
select
    *, row_number() over mine as number,
    max(last_seq) over (mine rows between unbounded preceding and 1 preceding) as reached
from every
window mine as (
    partition by gateway_id, incarnation order by first_seq, place >= 0, is_dead, kafka_partition, kafka_offset, place
);

create temp table repeated as select place from numbered where place >= 0 and first_seq <= reached;

create temp table intervals as
with runs as (
    select
        *, sum(coalesce(first_seq - 1::hugeint > reached, true)::int) over (
            partition by gateway_id, incarnation order by number
        ) as run
    from numbered
)
select
    gateway_id, incarnation, min(first_seq) as first_seq, max(last_seq) as last_seq, min(first_ms) as first_ms,
    max(last_ms) as last_ms, max(heard)::bigint as heard
from runs
group by gateway_id, incarnation, run
order by gateway_id, incarnation, first_seq;
