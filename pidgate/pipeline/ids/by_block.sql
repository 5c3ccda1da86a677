-- Producer ids as brokers give them out, second level: one row per block with an observed id.
create temp table merged as
select
    block_start, min(answer).node_id as node_id, min(first_ms) as first_ms, max(last_ms) as last_ms,
    sum(ids_seen)::bigint as ids_seen, max(ids_given) as ids_given, sum(ids_unnamed)::bigint as ids_unnamed
from blocks
group by all;
