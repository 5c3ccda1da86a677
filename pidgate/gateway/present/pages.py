"""The page of the docs that says what an alert or a failed check means, and what to do."""

from enum import StrEnum


class Page(StrEnum):
    """A file and a heading in it."""

    NOT_READY = "docs/runbooks.md#pidgatenotready"
    BROKER_DOWN = "docs/runbooks.md#pidgatebrokerdown"
    BROKER_SLOW = "docs/doctor.md#a-broker-is-slow"
    LOOP_SLOW = "docs/runbooks.md#pidgateloopstalled"
    WAITS_LONG = "docs/runbooks.md#pidgateclientwaitslong"
    FAILED_OPEN = "docs/runbooks.md#pidgatequotafailedopen"
    RELOAD_REFUSED = "docs/runbooks.md#pidgatereloadrefused"
    RESTART_NEEDED = "docs/operating.md#reload"
    ALL_OBSERVED = "docs/doctor.md#every-user-is-observed"
    GRACE = "docs/operating.md#a-cold-start"
    TOPIC_UNAVAILABLE = "docs/runbooks.md#pidgateeventstopicunavailable"
    EVENTS_LOST = "docs/runbooks.md#pidgateeventslost"
    CHANGES_STAY = "docs/runbooks.md#pidgatechangenotwritten"
    FUSE = "docs/operating.md#the-fuse"
    MEMBER_SILENT = "docs/fleet.md"
    LIMIT_HIT = "docs/limits.md"
    MEMBERS_DIFFER = "docs/runbooks.md#pidgatemembersdiffer"
    CLIENT_FAULT = "docs/runbooks.md#pidgateclientwithfault"
    OPEN_FILES = "docs/runbooks.md#pidgateopenfilesexhausted"
    NOT_SAVED = "docs/runbooks.md#pidgatestatenotsaved"
