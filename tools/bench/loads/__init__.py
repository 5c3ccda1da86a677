"""The loads: each a process of its own, which sends and measures."""
