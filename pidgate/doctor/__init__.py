"""`pidgate doctor`: what a gateway needs before it starts, and what is slow or wrong while it runs."""
