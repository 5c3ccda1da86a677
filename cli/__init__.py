"""The command `pidgate`: each command parses in app.py and works in a module of its own."""
