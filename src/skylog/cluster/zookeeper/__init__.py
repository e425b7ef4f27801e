"""The metadata store of a cluster: ZooKeeper, through kazoo."""

from skylog.cluster.zookeeper.access import ZooKeeperAccess
from skylog.cluster.zookeeper.session import ZooKeeperSession, open_zookeeper

__all__ = ["ZooKeeperAccess", "ZooKeeperSession", "open_zookeeper"]
