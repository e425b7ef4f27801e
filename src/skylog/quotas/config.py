"""Settings of quotas: the windows over which rates are measured."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """How rates are measured. Each field is a key of Kafka's broker configuration."""

    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        11,
        "Windows of controller_mutation_rate. A client that was quiet may make the changes of all of them at once.",
        kind="int",
        minimum=1,
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", 1, "Length of each of these windows.", kind="int", minimum=1
    )
    quota_window_num: int = setting(
        "quota.window.num",
        11,
        "Windows over which the rates of client quotas and of new connections are measured.",
        kind="int",
        minimum=1,
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", 1, "Length of each of these windows.", kind="int", minimum=1
    )
