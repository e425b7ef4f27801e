"""The broker: serves the Kafka protocol from logs on disk."""

from skylog.broker.broker import Broker
from skylog.broker.config import BrokerConfig, ServerConfig
from skylog.broker.standalone import standalone_broker

__all__ = ["Broker", "BrokerConfig", "ServerConfig", "standalone_broker"]
