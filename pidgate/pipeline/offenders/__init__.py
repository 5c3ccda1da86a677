"""Detector of users that burn producer ids: the patterns of events/patterns.py, found in the events.

producers.py         one row per producer id: when it came, what became of it
places.py            which of them are looked at together (sources, applications)
cadence.py           the beat of their starts      source_features.py  all that is known of a source
app_features.py      what the calm ones do together
rules.py             which numbers make which pattern: the one readable table
findings.py          one row per user and pattern  sentences.py  in words
evaluation.py        how often it is right, where the truth is known
"""
