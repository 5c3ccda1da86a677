-- Producer ids on the brokers' side: blocks inferred from responses (KIP-730), and epochs (KIP-360).
--
-- The controller assigns a broker blocks of 1,000 ids, aligned at multiples of 1,000. The broker gives them out
-- in order and loses the rest of a block on restart. One observed id therefore shows its block's owner, and all
-- lower ids of the block were given out before. Those never seen by the gateway went to producers that bypass
-- it.
--
-- A producer that lost its sequence raises its epoch by one and keeps the id. So does each new session of a
-- transactional id and, with transactions v2, each commit. Epochs have 16 bits; after the last one the id is
-- replaced.
--
-- First level: what a bucket of ids knows of each block of a thousand.

-- A new id starts at epoch 0. A returning transactional id has its old id with a higher epoch, perhaps from another broker.
-- unnamed: further responses that the gateway summed into the event without their ids.
create temp table blocks as
with seen as (
    select
        answered_producer_id as producer_id, wall_time_ms as at_ms, coalesce(count, 1) - 1 as unnamed,
        if(node_id is null, null, {'at_ms': wall_time_ms, 'node_id': node_id}) as answer
    from init_producer_id
    where answered_epoch = 0
    union all
    select producer_id, wall_time_ms, 0, null from decision where producer_id >= 0
), known as (
    select producer_id, min(at_ms) as at_ms, min(answer) as answer, sum(unnamed)::bigint as unnamed from seen group by all
)
select
    producer_id - producer_id % 1_000 as block_start, min(answer) as answer, min(at_ms) as first_ms, max(at_ms) as last_ms,
    count(*) as ids_seen, max(producer_id % 1_000) + 1 as ids_given, sum(unnamed)::bigint as ids_unnamed
from known
group by all;

-- Only ids above epoch 0. Epochs never decrease, so the lowest is the first. exhausted: Short.MAX_VALUE - 1, from where Kafka
-- assigns a new id instead of a higher epoch.
create temp table ids_epochs as
with seen as (
    select "user", producer_id, epoch from decision
    union all
    select "user", producer_id, epoch from id_usage
    union all
    select "user", answered_producer_id, answered_epoch from init_producer_id
), known as (
    select "user", producer_id, min(epoch) as first_epoch, max(epoch) as last_epoch
    from seen
    where producer_id >= 0 and epoch >= 0
    group by all
)
select *, last_epoch - first_epoch as bumps, last_epoch >= 32_766 as exhausted from known where last_epoch > 0;
