from collections.abc import Iterator

import pytest
from support.up_process import Up, running_up


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One whole service for the run; every job that a test submits has ended when the test does."""
    with running_up(tmp_path_factory.mktemp("up")) as process:
        yield process
