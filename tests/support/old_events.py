"""Events as they were written before a field was added, and what they are today."""

from typing import Any

NEW_WITH_A_DEFAULT: dict[str, dict[str, Any]] = {
    "config": {"default_transactional_ids_rate_milli": None, "refuse_init_producer_id": False}
}
NEW_IN_QUOTAS = {"transactional_ids_rate_milli": None}
"""In each of the quotas of users that an event lists."""


def as_written_today(written: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event with those that were added without a new schema version."""
    today = NEW_WITH_A_DEFAULT.get(written["type"], {}) | written
    if "quotas" in today:
        today["quotas"] = [NEW_IN_QUOTAS | quota for quota in today["quotas"]]
    return today
