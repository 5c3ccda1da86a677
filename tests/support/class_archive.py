"""Makes the archive of Kafka's classes (Java's class data sharing), with which its JVMs start in half the time.

None is needed: Java does without one that is missing, broken, or made by another Java or of other jars.
"""

import sys
import uuid

from tools.sandbox import guard
from tools.sandbox.errors import ToolFailed
from tools.sandbox.kafka import Cluster, ClusterSpec
from tools.sandbox.tools import JavaTools


def make(kafka_version: str) -> None:
    """Make the archive unless it is there: of all classes that a broker loads. Raises SandboxError."""
    tools = JavaTools(kafka_version)
    if tools.class_archive.exists():
        return
    print(f"sandbox: archiving the classes of Kafka {kafka_version} (once, about 15 s)", file=sys.stderr)
    work = guard.temporary_directory("classes-")
    classes = work / "classes.txt"
    spec = ClusterSpec(version=kafka_version, jvm_options=(f"-XX:DumpLoadedClassList={classes}",))
    with Cluster(spec) as cluster:
        cluster.node(1).stop()
    # Renamed when it is whole: brokers that start meanwhile see none, and of two that make it the later one stays.
    unfinished = tools.class_archive.with_suffix(f".{uuid.uuid4().hex}")
    dump = ("-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={unfinished}")
    try:
        JavaTools(kafka_version, heap_mb=1024, jvm_options=dump).run("kafka.Kafka")
        unfinished.rename(tools.class_archive)
    except ToolFailed as error:
        print(f"sandbox: brokers start without an archive of their classes: {error}", file=sys.stderr)
    finally:
        unfinished.unlink(missing_ok=True)
        guard.remove_directory(work)
