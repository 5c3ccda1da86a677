"""From the events topic, or landed copies of it, to tables, each event exactly once, also after a kill.

reading              record bytes -> an event, or a reason for rejection        (pure)
seqs, clocks         observed sequence numbers, clocks of gateways              (pure)
columns              the tables besides events, and the results of tasks
topic, landed        the sources: their state, tasks and readers
staged               a task: reads its offsets, checks them, writes files
commits              written files become visible by one commit
batches              one batch: distributed, deduplicated, corrected, committed; gaps/ and losses/
compaction           merges small files
loop                 reads the next offsets of the source until the end
"""
