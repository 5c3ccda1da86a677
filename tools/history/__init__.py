"""Synthetic history: days of a made-up fleet's events, with labels of what is true."""
