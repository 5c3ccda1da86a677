"""Patterns of users that create many producer ids: features, rules, wording; for the console and the pipeline. Pure.

    patterns.py     the patterns: name, sentence and advice of each
    features.py     the numbers that rules look at, of a source, an application or a user
    cadence.py      the beat of a source's starts, and the constants that define one
    families.py     client ids without their counted or random parts
    rules.py        which numbers make which pattern: the one readable table
    sentences.py    a finding in words
    accuracy.py     precision, recall and confusion where the truth is known

`pidgate who` (who/) fills the features from the last hours of the events topic, `pidgate pipeline offenders`
(pipeline/offenders/) from months of tables. To add a finding, add a pattern in patterns.py and a rule in
rules.py.
"""
