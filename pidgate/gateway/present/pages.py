"""The page of the docs that says what an alert or a failed check means, and what to do."""

from enum import StrEnum


class Page(StrEnum):
    """A file and a heading in it."""

    NOT_READY = "docs/how-to/runbooks.md#pidgatenotready"
    BROKER_DOWN = "docs/how-to/runbooks.md#pidgatebrokerdown"
    BROKER_SLOW = "docs/how-to/doctor.md#a-broker-is-slow"
    LOOP_SLOW = "docs/how-to/runbooks.md#pidgateloopstalled"
    WAITS_LONG = "docs/how-to/runbooks.md#pidgateclientwaitslong"
    FAILED_OPEN = "docs/how-to/runbooks.md#pidgatequotafailedopen"
    RELOAD_REFUSED = "docs/how-to/runbooks.md#pidgatereloadrefused"
    RESTART_NEEDED = "docs/how-to/reload.md"
    ALL_OBSERVED = "docs/how-to/doctor.md#every-user-is-observed"
    GRACE = "docs/how-to/restarts.md#a-cold-start"
    TOPIC_UNAVAILABLE = "docs/how-to/runbooks.md#pidgateeventstopicunavailable"
    EVENTS_LOST = "docs/how-to/runbooks.md#pidgateeventslost"
    CHANGES_STAY = "docs/how-to/runbooks.md#pidgatechangenotwritten"
    FUSE = "docs/how-to/fuse.md"
    MEMBER_SILENT = "docs/how-to/fleet.md"
    LIMIT_HIT = "docs/reference/limits.md"
    MEMBERS_DIFFER = "docs/how-to/runbooks.md#pidgatemembersdiffer"
    CLIENT_FAULT = "docs/how-to/runbooks.md#pidgateclientwithfault"
    OPEN_FILES = "docs/how-to/runbooks.md#pidgateopenfilesexhausted"
    NOT_SAVED = "docs/how-to/runbooks.md#pidgatestatenotsaved"
