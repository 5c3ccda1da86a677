"""`python -m pipeline JOB`: what `pidgate pipeline JOB` runs, and what spark-submit is given."""

from pidgate.pipeline.cli import main

if __name__ == "__main__":
    main()
