"""From the events topic to tables: each event exactly once, also after a kill.

reading, doubtful    a record's bytes -> an event, or the reason why not        (pure)
seqs                 which numbers were seen: duplicates, gaps                  (pure)
columns              the tables that are not events, and what tasks hand on
topic, client_settings   what the topic holds; how a secured cluster is reached
records, staged      a task: its offsets are read, checked and written to files
commits              what is written becomes visible by one commit, or not at all
batches              one batch of the topic: shared out, deduplicated, committed
accounts             gaps/ and losses/, and what may be forgotten
compaction           many small files of an hour become one
loop                 look at the topic and take what comes next, until the end
"""
