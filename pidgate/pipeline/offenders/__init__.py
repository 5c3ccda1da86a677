"""Users that burn producer ids, found in months of events by the rules of `pidgate.findings`.

producers.py         one row per producer id: start, last use, requests, errors
places.py            which of them are judged together (sources, applications)
cadence.py           the beat of their starts      source_features.py  all features of a source
app_features.py      features of the calm ones of an application
findings.py          one row per user and pattern, in words
evaluation.py        precision and recall, where the truth is known
"""
