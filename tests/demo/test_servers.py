"""A directory of the demo belongs to one broker or to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.demo.broker import DemoBroker
from skylog.demo.layout import Layout
from skylog.demo.servers import DemoCluster, make_servers
from skylog.errors import SkylogError


def test_one_broker_runs_alone_and_several_are_a_cluster(tmp_path: Path) -> None:
    assert isinstance(make_servers(Layout(tmp_path), 1, 0, print), DemoBroker)
    assert isinstance(make_servers(Layout(tmp_path), 3, 0, print), DemoCluster)


@pytest.mark.parametrize(("folder", "brokers", "made_by"), [("broker", 3, "one broker"), ("cluster", 1, "several")])
def test_a_directory_of_the_other_kind_is_not_used(tmp_path: Path, folder: str, brokers: int, made_by: str) -> None:
    (tmp_path / folder).mkdir()
    with pytest.raises(SkylogError, match=f"{tmp_path} was made by a demo with {made_by}.* choose another --data-dir"):
        make_servers(Layout(tmp_path), brokers, 0, print)
