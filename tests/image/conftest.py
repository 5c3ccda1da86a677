"""The image's build stage, carried out once for all tests of this folder: compiling takes a minute."""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.image import Container, stages


@pytest.fixture(scope="session")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The build stage, carried out."""
    folder = tmp_path_factory.mktemp("image")
    built = Container(folder)
    built.build(stages()[0])
    yield built
    shutil.rmtree(folder)
