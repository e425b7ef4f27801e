"""The public test kit: what a test needs in order to hold time and disks in its hands."""

from skylog.testing.clock import ManualClock
from skylog.testing.files import DiskFaults

__all__ = ["DiskFaults", "ManualClock"]
