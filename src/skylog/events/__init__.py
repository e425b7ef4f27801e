"""Event tracking for web applications. Works with any producer that implements `EventProducer`."""

from skylog.events.drops import DropReason
from skylog.events.envelope import EventError
from skylog.events.event_class import event
from skylog.events.event_log import EventLog, EventStats, RequestScope
from skylog.events.metrics import EventCollector
from skylog.events.producer import EventProducer

__all__ = [
    "DropReason",
    "EventCollector",
    "EventError",
    "EventLog",
    "EventProducer",
    "EventStats",
    "RequestScope",
    "event",
]
