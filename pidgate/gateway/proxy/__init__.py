"""Client connections: requests in, answers out, in order; what is forwarded, held back or answered here."""
