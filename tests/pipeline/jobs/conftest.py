"""A topic of events for the tests of jobs."""

from __future__ import annotations

import uuid

import pytest

from skylog import Admin
from skylog.testing import BrokerProcess


@pytest.fixture
def event_topic(skylog_broker: BrokerProcess) -> str:
    """A topic with two partitions that no other test has."""
    name = f"events-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2, configs={"retention.ms": "-1"})
    return name
