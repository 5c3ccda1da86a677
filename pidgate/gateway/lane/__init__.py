"""Lanes: threads in C that carry what needs no decision, without the interpreter (docs/decisions/0030)."""
