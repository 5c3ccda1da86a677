"""The archive of Kafka's classes: made once, used by whatever starts later, and never needed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import class_archive
from tools.sandbox import tools
from tools.sandbox.jars import NEWEST, OLDEST
from tools.sandbox.tools import JavaTools

pytestmark = pytest.mark.kafka


@pytest.fixture
def no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for archives in an empty folder."""
    monkeypatch.setattr(tools, "jars_cache", lambda: tmp_path)


def words_printed(version: str = NEWEST, *jvm_options: str) -> int:
    """How many words a tool prints whose answer is one."""
    tool = JavaTools(version).run("kafka.tools.StorageTool", "random-uuid", jvm_options=jvm_options)
    return len(tool.stdout.split())


@pytest.mark.usefixtures("no_archive")
class TestWithoutAnArchiveThatFits:
    def test_none_at_all_is_needed(self) -> None:
        assert not JavaTools().class_archive.exists()
        assert words_printed() == 1

    def test_a_broken_one_does_no_harm_and_is_not_spoken_of(self) -> None:
        JavaTools().class_archive.write_bytes(b"garbage")
        assert words_printed() == 1

    @pytest.mark.nightly
    @pytest.mark.parametrize("version", [NEWEST, OLDEST])
    def test_two_that_make_it_at_once_leave_one_that_java_takes(self, version: str, tmp_path: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(class_archive.make, [version] * 2))
        assert list(tmp_path.iterdir()) == [JavaTools(version).class_archive]
        # Java ends with an error when it cannot use the archive.
        assert words_printed(version, "-Xshare:on") == 1


def test_each_kafka_has_its_own() -> None:
    assert JavaTools(NEWEST).class_archive != JavaTools(OLDEST).class_archive
