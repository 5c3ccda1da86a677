"""The configuration file: read, checked, explained; and the units people write in it."""
