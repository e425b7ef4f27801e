"""What commands say where rights may be missing: which command gives them, and that lists leave out the rest."""

from __future__ import annotations

import os
from typing import Final

from skylog.cli.client_config import CONFIG_VARIABLE
from skylog.errors import ErrorCode, KafkaError, SkylogError

_RESOURCES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "--topic TOPIC",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "--group GROUP",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "--cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "--transactional-id ID",
}


def with_fix(error: SkylogError) -> str:
    """Return the message of an error, and the command that gives the right that was missing."""
    code = error.code if isinstance(error, KafkaError) else None
    resource = _RESOURCES.get(code) if code is not None else None
    if resource is not None:
        return f"{error}; an administrator gives the right with: skylog acls add USER OPERATION {resource}"
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"{error}{seen_with_login()}"
    return str(error)


def seen_with_login() -> str:
    """Return a remark for what is not found: users do not see everything. It is empty without a login."""
    return " (a user sees only what the user may describe)" if os.environ.get(CONFIG_VARIABLE) else ""
