"""Run the command line: `python -m pidgate`."""

from pidgate.cli.app import main

main()
