"""Snapshots of the cluster."""

from __future__ import annotations

from uuid import UUID

import orjson
import pytest

from skylog.cluster import BrokerImage, ClusterImage, PartitionImage, TopicImage

CLICKS = TopicImage(
    "clicks",
    UUID("12345678-1234-5678-1234-567812345678"),
    (PartitionImage(1, 0, (1, 2), (1, 2)), PartitionImage(2, 5, (2, 1), (2,))),
    {"retention.ms": "-1"},
    version=3,
)
EMPTY = ClusterImage("c", 1, {1: BrokerImage(1, "localhost", 9092, rack="a")})


def test_a_topic_comes_back_from_the_value_that_is_stored() -> None:
    stored = orjson.loads(orjson.dumps(CLICKS.to_value()))
    assert TopicImage.from_value("clicks", stored, 3) == CLICKS


def test_a_stored_value_does_not_change_with_the_topic() -> None:
    configs = {"retention.ms": "-1"}
    value = TopicImage("t", CLICKS.topic_id, (), configs, 1).to_value()
    configs["retention.ms"] = "5"
    assert value["configs"] == {"retention.ms": "-1"}


def test_topics_are_found_by_their_id_and_the_rest_stays() -> None:
    image = EMPTY.with_topics({"clicks": CLICKS})
    assert image.topics == {"clicks": CLICKS}
    assert image.names == {CLICKS.topic_id: "clicks"}
    assert (image.cluster_id, image.controller_id, image.brokers) == ("c", 1, EMPTY.brokers)
    assert EMPTY.topics == {}


def test_a_topic_that_has_gone_is_not_found_by_its_id_either() -> None:
    assert EMPTY.with_topics({"clicks": CLICKS}).with_topics({}).names == {}


@pytest.mark.parametrize("image", [EMPTY, CLICKS, CLICKS.partitions[0], EMPTY.brokers[1]])
def test_images_cannot_be_changed(image: object) -> None:
    field = next(iter(image.__slots__))  # type: ignore[attr-defined] # every image has slots
    with pytest.raises(AttributeError):
        setattr(image, field, None)
