"""The blog's data in SQLite: organisations, users, posts and comments. Independent of HTTP and events."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS organisations (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS users (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, salt BLOB NOT NULL, password BLOB NOT NULL,
    organisation_id INTEGER NOT NULL REFERENCES organisations, created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (token TEXT PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users);
CREATE TABLE IF NOT EXISTS posts (
    id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users, title TEXT NOT NULL, body TEXT NOT NULL,
    created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS comments (
    id INTEGER PRIMARY KEY, post_id INTEGER NOT NULL REFERENCES posts, user_id INTEGER NOT NULL REFERENCES users,
    body TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS follows (
    reader_id INTEGER NOT NULL REFERENCES users, author_id INTEGER NOT NULL REFERENCES users,
    PRIMARY KEY (reader_id, author_id));
"""
POSTS = """
SELECT posts.id, title, body, users.name AS author, posts.created_at FROM posts JOIN users ON user_id = users.id
"""
COMMENTS_OF = """
SELECT comments.id, body, users.name AS author, comments.created_at FROM comments JOIN users ON user_id = users.id
WHERE post_id = ? ORDER BY comments.id
"""
SIGN_UP = "INSERT INTO users (name, salt, password, organisation_id, created_at) VALUES (?, ?, ?, ?, ?)"
USERS = "SELECT id, name, organisation_id, created_at FROM users"


@dataclass(frozen=True, slots=True)
class User:
    id: int
    name: str
    organisation_id: int
    created_at: float


class NameTakenError(Exception):
    """Another user has this name."""


class Store:
    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(SCHEMA)

    def sign_up(self, name: str, password: str, organisation: str) -> User:
        salt = secrets.token_bytes(16)
        self._database.execute("INSERT OR IGNORE INTO organisations (name) VALUES (?)", (organisation,))
        (organisation_id,) = self._row("SELECT id FROM organisations WHERE name = ?", organisation)
        created_at = time.time()
        try:
            user_id = self._insert(SIGN_UP, name, salt, _digest(password, salt), organisation_id, created_at)
        except sqlite3.IntegrityError:
            raise NameTakenError(name) from None
        return User(user_id, name, organisation_id, created_at)

    def log_in(self, name: str, password: str) -> str | None:
        """Return the token of a new session, or None if name or password are wrong."""
        row = self._row("SELECT id, salt, password FROM users WHERE name = ?", name)
        if row is None or not hmac.compare_digest(row["password"], _digest(password, row["salt"])):
            return None
        token = secrets.token_urlsafe()
        self._insert("INSERT INTO sessions (token, user_id) VALUES (?, ?)", token, row["id"])
        return token

    def user_of(self, token: str) -> User | None:
        row = self._row(f"{USERS} JOIN sessions ON user_id = id WHERE token = ?", token)
        return None if row is None else User(*row)

    def user_named(self, name: str) -> User | None:
        row = self._row(f"{USERS} WHERE name = ?", name)
        return None if row is None else User(*row)

    def follow(self, reader: User, author: User, *, follows: bool) -> None:
        insert = "INSERT OR IGNORE INTO follows (reader_id, author_id) VALUES (?, ?)"
        delete = "DELETE FROM follows WHERE reader_id = ? AND author_id = ?"
        self._database.execute(insert if follows else delete, (reader.id, author.id))

    def posts(self) -> list[dict[str, Any]]:
        return self._rows(f"{POSTS} ORDER BY posts.id DESC LIMIT 20")

    def post(self, post_id: int) -> dict[str, Any] | None:
        """Return the post with its comments."""
        row = self._row(f"{POSTS} WHERE posts.id = ?", post_id)
        return None if row is None else {**dict(row), "comments": self._rows(COMMENTS_OF, post_id)}

    def add_post(self, user: User, title: str, body: str) -> int:
        statement = "INSERT INTO posts (user_id, title, body, created_at) VALUES (?, ?, ?, ?)"
        return self._insert(statement, user.id, title, body, time.time())

    def add_comment(self, user: User, post_id: int, body: str) -> int:
        statement = "INSERT INTO comments (user_id, post_id, body, created_at) VALUES (?, ?, ?, ?)"
        return self._insert(statement, user.id, post_id, body, time.time())

    def _row(self, query: str, *values: Any) -> Any:
        return self._database.execute(query, values).fetchone()

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in self._database.execute(query, values)]

    def _insert(self, statement: str, *values: Any) -> int:
        return self._database.execute(statement, values).lastrowid or 0


def _digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)
