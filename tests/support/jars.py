"""Get the jars of both Kafkas, and the newest tools before the tests, as part of the installation."""

from tests.support import class_archive
from tools.sandbox.jars import NEWEST, OLDEST, tools_version


def main() -> None:
    for version in (NEWEST, tools_version(NEWEST), OLDEST):
        class_archive.make(version)


if __name__ == "__main__":
    main()
