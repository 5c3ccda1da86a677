"""The configuration file: reading, checking and explaining it."""
