"""Producer ids on the brokers' side: blocks inferred from responses (KIP-730), and epochs (KIP-360).

The controller assigns a broker blocks of 1,000 ids, aligned at multiples of 1,000. The broker gives them out
in order and loses the rest of a block on restart. One observed id therefore shows its block's owner, and all
lower ids of the block were given out before. Those never seen by the gateway went to producers that bypass
it.

A producer that lost its sequence raises its epoch by one and keeps the id. So does each new session of a
transactional id and, with transactions v2, each commit. Epochs have 16 bits; after the last one the id is
replaced.

by_id.sql     a bucket of producer ids -> its part of each block; epochs of each id
by_block.sql  the parts of all buckets -> one row per block
by_node.sql   all blocks -> each broker's next block, and sums by hour
"""
