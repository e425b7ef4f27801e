"""Runs statements of SQL."""

from __future__ import annotations

import psycopg


def execute(url: str, *statements: str) -> None:
    """Run each statement in a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
