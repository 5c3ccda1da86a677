"""`pidgate who`: who brings new producer ids, by the events topic.

reading.py     the topic, record by record            (the only file that knows Kafka)
tally.py       events -> bounded sums                 sequences.py, coverage.py, bounded.py beside it
picture.py     what is known of a user, in plain values
findings.py    pictures -> findings in plain words     pure, thresholds by name
report.py      the stable JSON                        table.py: the same for people
"""
