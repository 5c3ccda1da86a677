"""Start of a job by spark-submit: `spark-submit ... job.py rates --tables hdfs:///pidgate`. The jobs come packed."""

from pidgate.pipeline.cli import main

main()
