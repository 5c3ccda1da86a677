"""One module per job: its options, what it reads, writes and says. The work itself is in the transforms."""
