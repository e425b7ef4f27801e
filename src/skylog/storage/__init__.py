"""Logs on disk: segments, indexes, recovery, retention, producer state.

Files only: no sockets, no event loop, no wire messages. What survives a crash is this package's promise.
"""

from skylog.storage.admission import Admitted, RejectedRecordsError
from skylog.storage.config import LogConfig
from skylog.storage.files import FileSlice
from skylog.storage.flush_task import FlushTask
from skylog.storage.log import AppendResult, Log
from skylog.storage.log_dir import Identity, LogDir
from skylog.storage.soundness import UncheckedError
from skylog.storage.time_search import TimestampOffset

__all__ = [
    "Admitted",
    "AppendResult",
    "FileSlice",
    "FlushTask",
    "Identity",
    "Log",
    "LogConfig",
    "LogDir",
    "RejectedRecordsError",
    "TimestampOffset",
    "UncheckedError",
]
