"""Closes the znodes that a cluster has created before `zookeeper.set.acl` was on: until then everybody may use them."""

from __future__ import annotations

import logging

from kazoo.exceptions import NoNodeError, ZookeeperError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from skylog.cluster.zookeeper.connection import ZooKeeperConnection
from skylog.cluster.zookeeper.znodes import MARKERS, RESERVED, Znodes, refused

logger = logging.getLogger(__name__)


async def close_to_others(connection: ZooKeeperConnection, znodes: Znodes) -> None:
    """Let only our own user read and change what is stored, unless that is so already.

    The parent of the markers is closed last, so it says whether everything is. Brokers with the former settings cannot
    make changes from now on. Raises SkylogError.
    """
    last = znodes.znode(MARKERS)
    try:
        acls, _ = await connection.retry(lambda client: client.get_acls_async(last))
        if acls != OPEN_ACL_UNSAFE:
            return
        count = await _close_below(connection, znodes, "")
        await connection.retry(lambda client: client.set_acls_async(last, CREATOR_ALL_ACL))
    except ZookeeperError as error:
        raise refused("set the ACLs of what is stored", error) from error
    logger.info("only the user of this broker may now read and change its %d entries in ZooKeeper", count)


async def _close_below(connection: ZooKeeperConnection, znodes: Znodes, path: str) -> int:
    """Close a znode after those below it, and return how many were closed. The root of ZooKeeper stays open."""
    znode = znodes.znode(path)
    try:
        names = await connection.retry(lambda client: client.get_children_async(znode))
        paths = [f"{path}/{name}" for name in names]
        count = sum([await _close_below(connection, znodes, each) for each in paths if each not in RESERVED])
        if znode == "/":
            return count
        await connection.retry(lambda client: client.set_acls_async(znode, CREATOR_ALL_ACL))
        return count + 1
    except NoNodeError:
        return 0  # deleted meanwhile
