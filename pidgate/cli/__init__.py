"""The command `pidgate`: options.py declares the options of each command, a module of its own does its work."""
