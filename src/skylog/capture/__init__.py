"""Captures the changes of PostgreSQL's tables to topics: `skylog capture`."""
