"""The metadata store of a cluster: ZooKeeper, through kazoo."""

from skylog.cluster.zookeeper.session import ZooKeeperSession, open_zookeeper

__all__ = ["ZooKeeperSession", "open_zookeeper"]
