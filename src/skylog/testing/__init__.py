"""The public test kit: real brokers and clusters, produce and consume in one call, a manual clock and failing disks.

Modules are imported on first use: pytest loads the plugin of this package in every run, even if no test uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from skylog.testing.broker import BrokerProcess, BrokerProcessError
    from skylog.testing.clock import ManualClock
    from skylog.testing.cluster import BrokerCluster
    from skylog.testing.files import DiskFaults
    from skylog.testing.messages import consume, produce
    from skylog.testing.waiting import wait_until

__all__ = [
    "BrokerCluster",
    "BrokerProcess",
    "BrokerProcessError",
    "DiskFaults",
    "ManualClock",
    "consume",
    "produce",
    "wait_until",
]

_MODULES: Final = {
    "BrokerCluster": "cluster",
    "BrokerProcess": "broker",
    "BrokerProcessError": "broker",
    "DiskFaults": "files",
    "ManualClock": "clock",
    "consume": "messages",
    "produce": "messages",
    "wait_until": "waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
