"""Splits long lists into pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from skylog.console.server.fields import Fields

T = TypeVar("T")

PER_PAGE: Final = 100
_MAX_PAGE: Final = 1_000_000


def paginate(rows: Sequence[T], fields: Fields, per_page: int = PER_PAGE) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the rows of the requested page, or of the last one, and the `paging` object of the document."""
    pages = max(-(-len(rows) // per_page), 1)
    page = min(fields.integer("page", 1, low=1, high=_MAX_PAGE), pages)
    start = (page - 1) * per_page
    return rows[start : start + per_page], {"page": page, "pages": pages, "per_page": per_page, "total": len(rows)}
