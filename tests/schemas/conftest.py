from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry.registry_process import running_registry


@pytest.fixture(scope="module")
def registry_url(skylog_bootstrap: str) -> Iterator[str]:
    with running_registry(skylog_bootstrap) as registry:
        yield registry.url
