"""Get the jars of both Kafkas, the newest tools and Spark's connector before the tests, as part of the installation."""

from pidgate.sandbox.jars import NEWEST, OLDEST, alone_with_jars, tools_version
from tests.support import class_archive


def main() -> None:
    for version in (NEWEST, tools_version(NEWEST), OLDEST):
        class_archive.make(version)
    from pidgate.pipeline.session import connector_jars

    with alone_with_jars():
        connector_jars()


if __name__ == "__main__":
    main()
