"""Client quotas: what may be set, which one applies to a client, and how much a client has used. Pure."""

from skylog.quotas.config import QuotaConfig
from skylog.quotas.entities import Entity, QuotaFilter, QuotaKey, Quotas, apply_changes, check_entity, describe_entity
from skylog.quotas.meters import ClientLimits, Meter, Meters, MutationMeter
from skylog.quotas.rules import Match, QuotaRules

__all__ = [
    "ClientLimits",
    "Entity",
    "Match",
    "Meter",
    "Meters",
    "MutationMeter",
    "QuotaConfig",
    "QuotaFilter",
    "QuotaKey",
    "QuotaRules",
    "Quotas",
    "apply_changes",
    "check_entity",
    "describe_entity",
]
