"""`python -m pidgate.pipeline JOB`: the entry point of `pidgate pipeline JOB` and spark-submit."""

import signal
import sys
from importlib.util import find_spec

if __name__ == "__main__":
    # Ctrl-C ends a job as it ends any program. `ingest` sets a handler of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if find_spec("pyspark") is None:
        remedy = "Install the extra, from a checkout: pip install '.[pipeline]'."
        print(f"pidgate pipeline: pyspark is not installed. {remedy}", file=sys.stderr)
        sys.exit(2)
    from pidgate.pipeline.cli import main

    main()
