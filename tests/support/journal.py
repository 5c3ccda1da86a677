"""The producers' journals live in the sandbox, whose demo keeps them, too; tests find them here."""

from pidgate.sandbox.journal import (
    Entry,
    Key,
    Label,
    Outcome,
    ProducerJournal,
    read_value,
    record_value,
    verifiable_name,
)

__all__ = [
    "Entry",
    "Key",
    "Label",
    "Outcome",
    "ProducerJournal",
    "read_value",
    "record_value",
    "verifiable_name",
]
