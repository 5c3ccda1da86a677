"""Quotas of new producer ids (KIP-936) and bytes (KIP-13), and the order of refused batches. PURE.

`Admission` judges Produce requests by their producer ids: forward, refuse or close. Behind it stand the exact table of
refused batches (sticky.py) and the state of all users (producer_ids.py): for each a layered filter of remembered ids,
a token bucket, and a queue of ids that came back. `ByteQuota` (byte_quota.py) holds clients to bytes per second.

No clock (times are arguments, monotonic milliseconds), no randomness (seeds are arguments), no bytes, no sockets.
"""
