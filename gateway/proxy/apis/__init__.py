"""What is done with each API: one module for an API or a family, found by table.py."""
