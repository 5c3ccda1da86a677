"""From the events topic to tables, each event exactly once, also after a kill.

reading, doubtful    record bytes -> an event, or a reason for rejection        (pure)
seqs                 observed sequence numbers: duplicates, gaps                (pure)
columns              the tables besides events, and the results of tasks
topic                the topic's state
records, staged      a task: reads its offsets, checks them, writes files
commits              written files become visible by one commit
batches              one batch of the topic: distributed, deduplicated, committed
accounts             gaps/ and losses/, and the removal of old state
compaction           merges the small files of an hour
loop                 reads the next offsets of the topic until the end
"""
