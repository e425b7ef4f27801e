"""The broker: serves the Kafka protocol from logs on disk."""

from skylog.broker.broker import Broker
from skylog.broker.config import BrokerConfig, ServerConfig

__all__ = ["Broker", "BrokerConfig", "ServerConfig"]
