-- Producer ids as brokers give them out, last level. One row stands for a thousand ids, so there are few rows.

-- node_id: the broker that sent the first of its ids; null: only seen in use, or sent through a bootstrap address.
-- used_up_ms: time until the broker's next block; null: its newest. burst: more than 16 ids per second.
create temp table ids_blocks as
with timed as (
    select *, lead(first_ms) over (partition by node_id order by first_ms, block_start) - first_ms as until_next_ms
    from merged
)
select
    block_start, node_id, first_ms, last_ms, ids_seen, ids_given, ids_unnamed,
    if(node_id is null, null, until_next_ms) as used_up_ms, coalesce(used_up_ms < 60_000, false) as burst
from timed
order by block_start;

-- blocks: those that began in this hour. ids_in_blocks: ids given out of them at least. coverage: the share of these in
-- ids_seen, a lower bound if there are unnamed ones. Otherwise a share below 1 means that producers bypass the gateway.
create temp table ids_by_hour as
with summed as (
    select
        first_ms - first_ms % 3_600_000 as hour_ms, node_id, count(*) as blocks, sum(ids_seen)::bigint as ids_seen,
        sum(ids_given)::bigint as ids_in_blocks, sum(ids_unnamed)::bigint as ids_unnamed,
        count(*) filter (burst) as bursts
    from ids_blocks
    group by all
)
select *, ids_seen / ids_in_blocks as coverage from summed order by all;
