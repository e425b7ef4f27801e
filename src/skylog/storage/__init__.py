"""Logs on disk: segments, indexes, recovery, retention, producer state.

Files only: no sockets, no event loop, no wire messages. This package guarantees what survives a crash.
"""

from skylog.storage.admission import Admitted, RejectedRecordsError
from skylog.storage.config import LogConfig
from skylog.storage.files import FileSlice
from skylog.storage.flush_task import FlushTask
from skylog.storage.log import AppendResult, Log
from skylog.storage.log_dir import Identity, LogDir
from skylog.storage.repair import MisfitError, RangeRepair, plan_repairs
from skylog.storage.scrub import plan_scrub
from skylog.storage.soundness import Check, UncheckedError
from skylog.storage.time_search import TimestampOffset

__all__ = [
    "Admitted",
    "AppendResult",
    "Check",
    "FileSlice",
    "FlushTask",
    "Identity",
    "Log",
    "LogConfig",
    "LogDir",
    "MisfitError",
    "RangeRepair",
    "RejectedRecordsError",
    "TimestampOffset",
    "UncheckedError",
    "plan_repairs",
    "plan_scrub",
]
