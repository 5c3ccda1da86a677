"""The handlers of APIs: one module for each API or family, found by table.py."""
