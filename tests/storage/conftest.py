from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.logs import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A log with segments of a few batches and an index entry for nearly each."""
    return Home(tmp_path, segment_bytes=600, index_interval_bytes=100)
