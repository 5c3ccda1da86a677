"""Kafka's class path, resolved from Maven Central by jgo and cached by it.

The first use of a version takes about half a minute and needs the network; later uses a tenth of a second.
Kafka 4 logs through slf4j-simple. Kafka 3.9 includes reload4j, and a second binding would conflict.
"""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tools.sandbox.errors import JarsNotResolved

NEWEST = "4.4.0"
OLDEST = "3.9.1"

_SCALA = "2.13"
_SLF4J = "1.7.36"
_TOOLS = {"4.4.0": "4.3.1"}
"""Version without kafka-tools on Maven Central -> version whose tools are used."""

_CLIENTS_ALONE = ("2.8.2", "3.5.2")
"""Versions of which only kafka-clients is used, with the tools of OLDEST."""


def endpoint(kafka_version: str) -> str:
    """Return jgo's endpoint: the server and its tools, and a log binding if the server has none."""
    if kafka_version in _CLIENTS_ALONE:
        return f"org.apache.kafka:kafka-clients:{kafka_version}"
    wanted = [
        f"org.apache.kafka:kafka_{_SCALA}:{kafka_version}",
        f"org.apache.kafka:kafka-tools:{tools_version(kafka_version)}",
    ]
    if logs_through_slf4j_simple(kafka_version):
        wanted.append(f"org.slf4j:slf4j-simple:{_SLF4J}")
    return "+".join(wanted)


def tools_version(kafka_version: str) -> str:
    """Return the version of the command line tools for this version."""
    return _TOOLS.get(kafka_version, kafka_version)


def logs_through_slf4j_simple(kafka_version: str) -> bool:
    return int(kafka_version.split(".", 1)[0]) >= 4


def jars_cache() -> Path:
    """Return jgo's cache of jars."""
    from jgo.config import GlobalSettings

    return Path(GlobalSettings.load().repo_cache)


@contextmanager
def alone_with_jars() -> Iterator[Path]:
    """Lock jgo's cache against other threads and processes of this user and yield its path.

    If two download the same missing jar, jgo fails for the second one.
    """
    folder = jars_cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".pidgate-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of this open file, which each thread has for itself
        yield folder


def _server_jar(kafka_version: str) -> str:
    return f"org/apache/kafka/kafka_{_SCALA}/{kafka_version}/kafka_{_SCALA}-{kafka_version}.jar"


@cache
def class_path(kafka_version: str = NEWEST) -> tuple[Path, ...]:
    """Return all jars of the server and its tools, in order. Raises JarsNotResolved."""
    try:
        import jgo
    except ImportError as error:
        raise JarsNotResolved("jgo is not installed. Install the extra: pip install '.[sandbox]'.") from error
    wanted = endpoint(kafka_version)
    if kafka_version in _CLIENTS_ALONE:
        server_jar = f"org/apache/kafka/kafka-clients/{kafka_version}/kafka-clients-{kafka_version}.jar"
    else:
        server_jar = _server_jar(kafka_version)
    try:
        with alone_with_jars() as cache_of_jars:
            if not (cache_of_jars / server_jar).exists():
                print(
                    f"sandbox: getting the jars of Kafka {kafka_version} (once, about 40 s)", file=sys.stderr
                )
            jars = tuple(Path(jar) for jar in jgo.build(wanted).all_jars)
        if kafka_version in _TOOLS:
            # Last: a class that the tools need and this version no longer has (Exit).
            jars += tuple(
                jar
                for jar in class_path(tools_version(kafka_version))
                if jar.name.startswith("kafka-clients-")
            )
        if kafka_version in _CLIENTS_ALONE:
            jars += tuple(jar for jar in class_path(OLDEST) if not jar.name.startswith("kafka-clients-"))
    # jgo guarantees no exception type: network, XML and cache errors all occur.
    except Exception as error:
        raise JarsNotResolved(
            f"Kafka {kafka_version} could not be resolved from Maven Central "
            f"({type(error).__name__}: {error}). It needs the network once; afterwards the cache serves."
        ) from error
    if not jars:
        raise JarsNotResolved(f"jgo found no jars for {wanted}")
    return jars
