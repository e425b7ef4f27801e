"""The clients that are connected: by client id and address, with the topics that they write and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skylog.broker.session import Session
from skylog.broker.time_slice import cooperatively

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

MAX_CLIENTS: Final = 1000
_MAX_TOPICS: Final = 50


async def client_documents(broker: Broker, now_s: float) -> dict[str, Any]:
    """Return the clients with the most connections, and how many are left out. `now_s` is the loop's time."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    async for connection in cooperatively(list(broker.listener.connections)):
        session = connection.handler
        if connection.closed or not isinstance(session, Session):
            continue
        key = session.client_id or "", connection.peer.rpartition(":")[0], session.software
        row = found.setdefault(key, _new_row(key))
        row["connections"] += 1
        row["writes"].update(session.written)
        row["reads"].update(session.read)
        row["idle_s"] = min(row["idle_s"], max(now_s - connection.last_activity, 0.0))
    rows = sorted(found.values(), key=lambda row: (-row["connections"], row["client_id"], row["host"]))
    return {"clients": [_document(row) for row in rows[:MAX_CLIENTS]], "more": max(len(rows) - MAX_CLIENTS, 0)}


def _new_row(key: tuple[str, str, str]) -> dict[str, Any]:
    client_id, host, software = key
    return {
        "client_id": client_id,
        "host": host,
        "software": software,
        "connections": 0,
        "writes": set(),
        "reads": set(),
        "idle_s": float("inf"),
    }


def _document(row: dict[str, Any]) -> dict[str, Any]:
    topics = {name: sorted(row[name])[:_MAX_TOPICS] for name in ("writes", "reads")}
    return row | topics | {"idle_s": round(row["idle_s"], 1)}
