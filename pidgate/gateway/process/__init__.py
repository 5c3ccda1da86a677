"""Processes: the gateway in one, or as supervisor, state owner and workers."""
