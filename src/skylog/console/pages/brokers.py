"""`/brokers/{node_id}`: a broker's configuration, also at run time, its log directories and its clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from skylog.client.brokers import ALL_BROKERS, BrokerConfig, LogDirectory
from skylog.client.cluster import BrokerLoad, ClusterBroker
from skylog.console.cluster.client_pool import Clients
from skylog.console.monitoring import figures as figure
from skylog.console.server.fields import FieldError, Fields, body
from skylog.console.server.page import ActionResult, Page, Route, console_of
from skylog.errors import SkylogError
from skylog.units import config_value

if TYPE_CHECKING:
    from skylog.console.app import Console

_SHOWN_TOPICS: Final = 20
_NO_LOAD: Final = BrokerLoad(0, 0, 0)
_OTHER_BROKER: Final = "a broker tells its clients only to the console that it started"


@dataclass(frozen=True, slots=True)
class _BrokerState:
    """The current state of a broker, queried on each request."""

    broker: ClusterBroker
    configs: list[BrokerConfig]
    directories: list[LogDirectory]
    directories_problem: str | None


def _describe(clients: Clients, node_id: int) -> _BrokerState:
    found = clients.brokers.find(node_id)
    configs = clients.brokers.configs(node_id)
    try:
        return _BrokerState(found, configs, clients.brokers.log_directories(found), None)
    except SkylogError as error:
        return _BrokerState(found, configs, [], str(error))


async def broker(request: Request) -> Page | ActionResult:
    """Serve the page of a broker. Its forms post to the same path."""
    node_id, console = _node_id(request), console_of(request)
    if request.method == "POST":
        return await _change(console, node_id, await body(request))
    await console.replicas.first_attempt()
    await console.monitor.first_attempt()
    state = await console.cluster.run(lambda clients: _describe(clients, node_id))
    load = console.replicas.latest.loads().get(node_id, _NO_LOAD) if console.replicas.latest else _NO_LOAD
    document = {
        "node_id": node_id,
        "address": state.broker.address,
        "rack": state.broker.rack,
        **asdict(load),
        "messages_in_per_s": console.monitor.history.last((figure.BROKER_MESSAGES_IN, str(node_id))),
        "directories": [_directory(each) for each in state.directories],
        "directories_problem": state.directories_problem,
        "configs": [_config(each) for each in _changed_first(state.configs)],
        **await _own(console, node_id),
    }
    return Page("broker.html", f"Broker {node_id}", document)


async def _own(console: Console, node_id: int) -> dict[str, Any]:
    """Return what only a broker itself knows: its health and its clients."""
    own: dict[str, Any] = {"health": None, "connections": None, "clients": None, "clients_more": 0}
    if console.broker is None or node_id != console.monitor.parent_id:
        return own | {"clients_problem": _OTHER_BROKER}
    try:
        health, found = await console.broker.health(), await console.broker.clients()
    except SkylogError as error:
        return own | {"clients_problem": str(error)}
    return {
        "health": {"problems": health["problems"], "warnings": health.get("warnings", [])},
        "connections": sum(each["connections"] for each in found["clients"]),
        "clients": found["clients"],
        "clients_more": found["more"],
        "clients_problem": None,
    }


def _changed_first(configs: list[BrokerConfig]) -> list[BrokerConfig]:
    return sorted(configs, key=lambda each: (not each.is_dynamic, each.is_default, each.name))


def _config(each: BrokerConfig) -> dict[str, Any]:
    return asdict(each) | {"is_default": each.is_default, "is_dynamic": each.is_dynamic}


def _directory(each: LogDirectory) -> dict[str, Any]:
    whole = each.size_bytes
    largest = sorted(each.topics.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN_TOPICS]
    return {
        "path": each.path,
        "size_bytes": whole,
        "total_bytes": each.total_bytes,
        "free_bytes": each.free_bytes,
        "error": each.error,
        "topic_count": len(each.topics),
        "topics": [
            {"name": name, "size_bytes": size_bytes, "share": size_bytes / whole if whole else 0.0}
            for name, size_bytes in largest
        ],
    }


async def _change(console: Console, node_id: int, fields: Fields) -> ActionResult:
    action = fields.choice("action", ("set_config", "reset_config"))
    key = fields.text("key").strip()
    name = ALL_BROKERS if fields.choice("scope", ("this", "all"), "this") == "all" else str(node_id)
    value = None if action == "reset_config" else config_value(key, fields.text("value", "").strip())
    await console.cluster.run(lambda clients: clients.brokers.alter_config(name, key, value))
    return ActionResult(f"/brokers/{node_id}#configs", {"node_id": node_id, "key": key, "value": value})


def _node_id(request: Request) -> int:
    text: str = request.path_params["node_id"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise FieldError(f"a broker has a number, not '{text}'")
    return int(text)


ROUTES: Final[tuple[Route, ...]] = (("/brokers/{node_id}", broker, ["GET", "POST"]),)
