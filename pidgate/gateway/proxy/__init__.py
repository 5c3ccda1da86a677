"""Client connections: forward requests and answers in order; refuse, hold or answer some requests here."""
