"""Sockets and frames: listeners, connections, back-pressure. Knows frames, not their content."""

from skylog.net.budget import MemoryBudget
from skylog.net.connection import Connection, ConnectionHandler, FrameHandler, PendingReply, Shortcut
from skylog.net.listener import Listener, NetConfig
from skylog.net.outbox import FilePart, Reply

__all__ = [
    "Connection",
    "ConnectionHandler",
    "FilePart",
    "FrameHandler",
    "Listener",
    "MemoryBudget",
    "NetConfig",
    "PendingReply",
    "Reply",
    "Shortcut",
]
