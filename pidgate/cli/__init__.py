"""The command `pidgate`: options.py declares the options of each command, a module per command does its work."""
