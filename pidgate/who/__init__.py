"""`pidgate who`: users that create new producer ids, according to the events topic.

reading.py     the topic, record by record            (the only file that knows Kafka)
tally.py       events -> bounded sums                 sequences.py, coverage.py, bounded.py beside it
picture.py     the known facts of a user, in plain values
findings.py    pictures -> findings in plain words     pure, thresholds by name
report.py      the stable JSON                        table.py: the same for people
"""
