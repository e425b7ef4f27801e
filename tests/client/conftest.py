"""Topics with messages in them."""

from __future__ import annotations

import pytest

from skylog import Admin, Producer


@pytest.fixture
def four_partitions(skylog_admin: Admin, skylog_topic: str) -> str:
    """The name of an empty topic with four partitions."""
    skylog_admin.add_partitions(skylog_topic, 4)
    return skylog_topic


@pytest.fixture
def letters(skylog_bootstrap: str, skylog_topic: str) -> str:
    """The name of a topic whose partition 0 holds a, b, c, d and e."""
    with Producer(skylog_bootstrap) as producer:
        for letter in "abcde":
            producer.send(skylog_topic, letter, partition=0)
    return skylog_topic
