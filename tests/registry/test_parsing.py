"""Schemas that the registry parses."""

from __future__ import annotations

import sys

import pytest

from skylog.registry.errors import RegistryError
from skylog.registry.parsing import Source, parse_source


def test_a_format_whose_packages_are_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skylog.schemas.json_schema", None)  # as if it could not be imported
    with pytest.raises(
        RegistryError, match=r"the registry lacks a package: .* pip install 'skylog\[schemas\]'"
    ) as caught:
        parse_source(Source("JSON", '{"title": "not parsed before"}'))
    assert caught.value.status == 422
