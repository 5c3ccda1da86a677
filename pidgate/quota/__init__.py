"""Quotas of new producer ids (KIP-936) and bytes (KIP-13), and the order of refused batches. PURE.

`Admission` (admission.py) judges Produce requests by their producer ids: forward, refuse or close. It uses

- sticky.py: the exact table of refused batches and held beginnings; sticky_entries.py holds its records and bounds;
- producer_ids.py: decisions about new ids, for the users in users.py. Each has layered filters of remembered ids
  (layered_filter.py), a token bucket (token_bucket.py) and a queue of ids that came back (retry_queue.py);
- restoring.py: users from history and snapshots; fail_open.py: verdicts after an error of the quota.

`ByteQuota` (byte_quota.py) limits clients to bytes per second. settings.py and changes.py hold the quotas in force;
decisions.py the values that go in and out; counters.py what operators see.

No clock (times are arguments, monotonic milliseconds), no randomness (seeds are arguments), no bytes, no sockets.
"""
