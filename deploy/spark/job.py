"""What spark-submit starts: `spark-submit ... job.py rates --tables hdfs:///pidgate`. The jobs come in the archive."""

from pidgate.pipeline.cli import main

main()
