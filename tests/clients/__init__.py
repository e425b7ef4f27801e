"""Compatibility with Kafka clients written elsewhere.

Each `test_<client>.py` takes from `contract` the groups of promises which its client can ask for, and adds what only
that client does. `peers` adapts every client to one interface, so that a promise is written once. The promises are
Apache Kafka's: with SKYLOG_TEST_BOOTSTRAP=host:port the same tests run against any broker, Apache Kafka included.
"""

import pytest

pytest.register_assert_rewrite("tests.clients.contract")
