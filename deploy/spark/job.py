"""What spark-submit starts: `spark-submit ... job.py rates --tables hdfs:///pidgate`. The jobs come in the archive."""

from pipeline.cli import main

main()
