"""Sockets and frames: listeners, connections, back-pressure. Knows frames, not what is in them."""

from skylog.net.budget import MemoryBudget
from skylog.net.connection import Connection, Handler, PendingReply
from skylog.net.listener import Listener, NetConfig
from skylog.net.outbox import FilePart, Reply

__all__ = ["Connection", "FilePart", "Handler", "Listener", "MemoryBudget", "NetConfig", "PendingReply", "Reply"]
