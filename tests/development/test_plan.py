"""The settings of the brokers of a development cluster."""

from __future__ import annotations

import pytest

from skylog.development import ClusterPlan
from skylog.errors import ConfigError


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", None), (2, "2", None), (3, "3", "2"), (5, "3", "2")]
)
def test_topics_have_up_to_three_replicas_and_survive_the_loss_of_one(
    brokers: int, replicas: str, in_sync: str | None
) -> None:
    settings = ClusterPlan().broker_settings(brokers)
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == replicas
    assert settings["transaction.state.log.replication.factor"] == replicas
    assert settings.get("min.insync.replicas") == in_sync


def test_settings_of_the_user_take_precedence() -> None:
    assert ClusterPlan(settings={"min.insync.replicas": "1"}).broker_settings(3)["min.insync.replicas"] == "1"


@pytest.mark.parametrize("key", ["node.id", "broker.id", "advertised.listeners"])
def test_a_setting_that_brokers_cannot_share_is_an_error(key: str) -> None:
    with pytest.raises(ConfigError, match=f"--set {key}: each broker .* has its own"):
        ClusterPlan(settings={key: "1"}).check()
