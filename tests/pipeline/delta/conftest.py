"""A place for tables: a directory, and a bucket of an S3-compatible store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.delta.store import VARIABLES, make_bucket, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**VARIABLES, "AWS_ENDPOINT_URL": s3}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{make_bucket(s3)}"


@pytest.fixture(params=["directory", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The parent of tables."""
    if request.param == "directory":
        return str(tmp_path)
    found: str = request.getfixturevalue("bucket")
    return found
