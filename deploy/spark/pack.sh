#!/bin/sh
# Packs the pipeline with its native dependencies into one archive for `spark-submit --archives`.
#
#   deploy/spark/pack.sh [ARCHIVE]          default: build/spark/pidgate-pipeline.tar.gz
#
# PYTHON: an interpreter that is at the same path on every node of the cluster, of the same minor version as the one
# given here (the archive holds libraries, not the interpreter; venv-pack's --python-prefix is for another path).
# Spark itself is not in it: the cluster brings its own. An editable install cannot be packed; so pidgate is built.
set -eu
unset PYTHONPATH  # what it names would count as installed, and not be in the archive

cd "$(dirname "$0")/../.."
archive=${1:-build/spark/pidgate-pipeline.tar.gz}
python=${PYTHON:-python3.11}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The locked versions; the hashes stay out, for a constraints file with hashes would demand one of the wheel built here.
sed -n 's/^\([A-Za-z0-9._-]*==[^\\]*\)\\*$/\1/p' requirements/dev.lock > "$work/constraints.txt"

"$python" -m venv "$work/environment"
in_it="$work/environment/bin/python -m pip --disable-pip-version-check --quiet"
$in_it install --constraint "$work/constraints.txt" --requirement deploy/spark/requirements.txt

# Plain: compiled here it would run only on nodes with a C library as new as this machine's.
PIDGATE_PURE=1 $in_it wheel --no-deps --wheel-dir "$work" .
$in_it install --no-deps "$work"/pidgate-*.whl

# Whatever is missing shows here and not on the cluster. Spark brings pyspark, so the pipeline itself cannot be imported
# yet. -I: nor can what lies in this folder.
"$work/environment/bin/python" -I -c 'import confluent_kafka, duckdb, jinja2, mmh3, msgspec, numpy, obstore, pandas, pyarrow, yaml, pidgate.quota.producer_ids, pidgate.events.reading, pidgate.pipeline'
$in_it uninstall --yes setuptools pip

# In an environment of its own: what packs need not be shipped.
"$python" -m venv "$work/packer"
"$work/packer/bin/python" -m pip --disable-pip-version-check --quiet install 'venv-pack==0.2.0' 'setuptools<81'
mkdir -p "$(dirname "$archive")"
"$work/packer/bin/venv-pack" --quiet --force --compress-level 1 --prefix "$work/environment" --output "$archive"
ls -lh "$archive"
