"""Quotas of new producer ids (KIP-936) and bytes (KIP-13), and the order of refused batches. PURE.

`Admission` judges Produce requests by their producer ids: forward, refuse or close. Behind it stand the exact table of
refused batches (sticky.py) and the state of all users (producer_ids.py): for each a layered filter of remembered ids,
a token bucket, and a queue of ids that came back. `ByteQuota` (byte_quota.py) holds clients to bytes per second.

No clock (times are arguments, monotonic milliseconds), no randomness (seeds are arguments), no bytes, no sockets.
"""

from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota, ByteSnapshot, ClientSensors
from pidgate.quota.counters import WAITED_BUCKETS_MS, UserCounters, UserSnapshot
from pidgate.quota.entities import EffectiveQuota, User, resolve
from pidgate.quota.owners import Owner, ProducerIdOwners
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota, rate_milli
from pidgate.quota.state import Answer, AskedId, Question
from pidgate.quota.sticky import Look, StickyRefusals
from pidgate.quota.users import GaveUp
from pidgate.quota.verdicts import (
    FORWARD,
    Bound,
    Close,
    Decision,
    Forward,
    ProducerBatch,
    Reason,
    Refuse,
    Session,
    Verdict,
)
from pidgate.quota.wording import error_message

__all__ = [
    "FORWARD",
    "WAITED_BUCKETS_MS",
    "Admission",
    "Answer",
    "AskedId",
    "Bound",
    "ByteQuota",
    "ByteSnapshot",
    "ClientSensors",
    "Close",
    "Decision",
    "EffectiveQuota",
    "Forward",
    "GaveUp",
    "Look",
    "Mode",
    "Owner",
    "ProducerBatch",
    "ProducerIdOwners",
    "ProducerIdQuota",
    "ProducerIdSettings",
    "Question",
    "Quotas",
    "Reason",
    "Refuse",
    "Session",
    "StickyRefusals",
    "User",
    "UserCounters",
    "UserQuota",
    "UserSnapshot",
    "Verdict",
    "error_message",
    "rate_milli",
    "resolve",
]
