"""Run the command line: `pidgate`, or `python -m pidgate`."""

import signal


def main() -> None:
    """Run the console script. Ctrl-C ends it as it ends any program, also while modules are imported.

    `run` and `load` set handlers of their own.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pidgate.cli.app import app

    app(prog_name="pidgate")


if __name__ == "__main__":
    main()
