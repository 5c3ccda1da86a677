"""One module per job: its options, input, output and messages."""
