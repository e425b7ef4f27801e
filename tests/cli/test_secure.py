"""`skylog secure` and `skylog users`: a secured broker, and every command through it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from skylog import Admin, Producer
from skylog.broker import ServerConfig
from skylog.cli.client_config import CONFIG_VARIABLE
from skylog.cli.serve.broker_server import BrokerServer
from skylog.client import kafka_settings
from skylog.client.brokers import Brokers
from skylog.client.cluster_admin import ClusterAdmin
from skylog.client.connection import Connection
from skylog.client.kafka_settings import as_librdkafka, read_client_config
from skylog.client.peer_requests import ask
from skylog.client.peer_security import peer_security
from skylog.client.transactions import TransactionAdmin
from skylog.config import read_properties
from skylog.errors import ConfigError
from skylog.net.peer import PeerError
from skylog.protocol.metadata import MetadataRequest
from skylog.testing import BrokerProcess, consume, wait_until

from ..descendants import below
from .commands import run_skylog


def skylog(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return run_skylog(*arguments, stdin=stdin.encode(), variables=variables)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secure") / "secrets"
    done = skylog("secure", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def broker(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("data")
    with BrokerProcess(data_dir, options=["--config", str(secrets / "server.properties")]) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess, secrets: Path, tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    text = (secrets / "client.properties").read_text()
    path.write_text(text.replace("bootstrap.servers=127.0.0.1:9092", f"bootstrap.servers={broker.bootstrap}"))
    return str(path)


def test_only_the_owner_may_read_the_files(secrets: Path) -> None:
    assert {path.name for path in secrets.iterdir()} == {
        "ca.pem",
        "broker.pem",
        "client.pem",
        "server.properties",
        "cluster.properties",
        "client.properties",
        "client.librdkafka.properties",
    }
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    again = skylog("secure", str(secrets))
    assert again.returncode == 1
    assert "exists" in again.stderr


def test_commands_take_the_settings_by_option_and_by_environment(client: str) -> None:
    done = skylog("topics", "create", "letters", "--partitions", "2", "--config", client)
    assert done.returncode == 0, done.stderr
    done = skylog("produce", "letters", stdin="hello\n", SKYLOG_CONFIG=client)
    assert done.returncode == 0, done.stderr
    done = skylog("topics", "list", "--json", "--config", client)
    assert [topic["name"] for topic in json.loads(done.stdout)] == ["letters"], done.stderr


def test_strangers_are_not_served(broker: BrokerProcess) -> None:
    done = skylog("topics", "list", "--bootstrap", broker.bootstrap)
    assert done.returncode == 1
    assert "if it requires TLS or a login, say how in the file of --config or SKYLOG_CONFIG" in done.stderr


def with_login(client: str, path: Path, user: str, password: str) -> str:
    login = f'username="{user}" password="{password}"'
    path.write_text(re.sub(r'username="[^"]*" password="[^"]*"', login, Path(client).read_text()))
    return str(path)


ALTER, DESCRIBE = "User:alice may not ALTER the cluster", "User:alice may not DESCRIBE the cluster"
REFUSED = {
    "users list": (f"cannot list the users: {DESCRIBE}; ", "OPERATION --cluster"),
    "acls list": (f"cannot list the ACLs: {DESCRIBE}; ", "OPERATION --cluster"),
    "quotas list": ("cannot list the quotas: User:alice may not DESCRIBE_CONFIGS the cluster; ", "OPERATION --cluster"),
    "acls add bob read --topic t": (f"cannot add the ACLs: {ALTER}; ", "OPERATION --cluster"),
    "quotas set --user bob --request-percentage 5": ("User:alice may not ALTER_CONFIGS the cluster; ", "--cluster"),
    "produce secret": ("topic 'secret': this user may not write to it, ", "write create --topic secret"),
    "topics create made": ("User:alice may not CREATE the topic 'made'; ", "OPERATION --topic TOPIC"),
}


def test_a_refused_command_says_which_right_is_missing(client: str, tmp_path: Path) -> None:
    assert skylog("users", "add", "alice", "--config", client, stdin="secret\n").returncode == 0
    alice = with_login(client, tmp_path / "alice.properties", "alice", "secret")
    for command, (error, right) in REFUSED.items():
        done = skylog(*command.split(), "--config", alice, stdin="hello\n")
        assert (done.returncode, error in done.stderr, "Traceback" in done.stderr) == (1, True, False), done.stderr
        assert re.search(f"an administrator gives the rights? with: skylog acls add USER .*{right}(;|$)", done.stderr)


def test_what_a_user_may_not_see_is_not_called_absent_without_a_remark(client: str, tmp_path: Path) -> None:
    assert skylog("users", "add", "alice", "--config", client, stdin="secret\n").returncode == 0
    alice = with_login(client, tmp_path / "alice.properties", "alice", "secret")
    for command in ("topics list", "groups list", "topics describe secret", "tail secret --no-follow"):
        done = skylog(*command.split(), "--config", alice)
        assert "(a user sees only what the user may describe)" in done.stderr, done.stderr


def test_a_file_that_is_not_there_is_named() -> None:
    for command in (["topics", "list"], ["acls", "list"], ["produce", "letters"]):
        done = skylog(*command, "--config", "nosuch.properties")
        assert (done.returncode, "cannot read --config nosuch.properties: No such file" in done.stderr) == (1, True)


def test_a_failed_connection_says_what_to_check(client: str, tmp_path: Path) -> None:
    wrong = with_login(client, tmp_path / "wrong.properties", "admin", "wrong")
    done = skylog("topics", "list", "--config", wrong)
    assert "(invalid credentials); check the login in the file of --config" in done.stderr
    untrusting = tmp_path / "untrusting.properties"
    untrusting.write_text(re.sub(r"ssl\.truststore.*", "", Path(client).read_text()))
    done = skylog("topics", "list", "--config", str(untrusting))
    assert "check the settings ssl.* in the file of --config" in done.stderr


def test_settings_that_are_misspelled_or_of_a_broker_are_named(secrets: Path, tmp_path: Path) -> None:
    done = skylog("topics", "list", "--config", str(secrets / "server.properties"))
    assert "'listeners' is a setting of brokers: give the settings of a client" in done.stderr
    done = skylog("serve", "--config", str(secrets / "client.properties"), "--data-dir", str(tmp_path / "data"))
    assert "'bootstrap.servers' is a setting of clients: give the settings of a broker" in done.stderr
    path = tmp_path / "typo.properties"
    for key in ("securty.protocol", "kafka.security.protocol", "sals.mechanism"):
        path.write_text(f"{key}=SASL_SSL\nmy.own.setting=1\n")
        done = skylog("topics", "list", "--config", str(path))
        assert f"unknown setting '{key}' in {path}; did you mean 's" in done.stderr, done.stderr
    path.write_text("security.protocol=SASL_SSL\nsasl.mechansim=PLAIN\n")
    assert 'No such configuration property: "sasl.mechansim"' in skylog("topics", "list", "--config", str(path)).stderr


def test_users_are_added_listed_and_removed(broker: BrokerProcess, client: str) -> None:
    assert skylog("users", "add", "alice", "--config", client, stdin="secret\n").returncode == 0
    done = skylog("users", "list", "--json", "--config", client)
    assert {row["user"] for row in json.loads(done.stdout)} == {"admin", "alice"}
    assert skylog("users", "remove", "alice", "--config", client).returncode == 0
    done = skylog("users", "remove", "alice", "--config", client)
    assert (done.returncode, "there is no user alice" in done.stderr) == (1, True)


def test_users_are_added_before_the_first_start(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    assert skylog("users", "add", "bob", "--data-dir", data_dir, SKYLOG_USER_PASSWORD="b").returncode == 0
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with BrokerProcess(data_dir, settings) as running:
        refused = skylog("users", "list", "--data-dir", data_dir)
        assert refused.returncode == 1  # the broker uses it
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        jaas = 'x.ScramLoginModule required username="bob" password="b";'
        with Producer(running.bootstrap, config=login | {"sasl.jaas.config": jaas}) as producer:
            producer.send("t", b"v", wait=True)


def test_the_python_clients_take_the_same_settings(
    broker: BrokerProcess, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYLOG_CONFIG", client)
    Admin(broker.bootstrap).create_topic("notes")
    with Producer(broker.bootstrap) as producer:
        producer.send("notes", b"note")
    assert [message.value for message in consume(broker.bootstrap, "notes", count=1)] == [b"note"]


def test_requests_that_librdkafka_does_not_have_take_the_same_settings(
    broker: BrokerProcess, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYLOG_CONFIG", client)
    assert ClusterAdmin(broker.bootstrap).list_reassignments() == []
    assert TransactionAdmin(broker.bootstrap).list_transactions() == []
    connection = Connection(broker.bootstrap)
    brokers = Brokers(connection, connection.admin_client())
    (directory,) = brokers.log_directories(brokers.find(1))
    assert directory.error is None


def test_requests_that_librdkafka_does_not_have_do_not_go_to_strangers(broker: BrokerProcess, client: str) -> None:
    untrusted = {key: value for key, value in read_client_config(client).items() if key != "ssl.ca.location"}
    connection = Connection(broker.bootstrap, read_client_config(client))
    stranger = Brokers(connection, connection.admin_client()).find(1)
    with pytest.raises(PeerError, match="certificate verify failed"):
        ask(stranger, MetadataRequest(topics=[]), 20, peer_security(untrusted))
    unverified = untrusted | {"enable.ssl.certificate.verification": "false"}
    assert ask(stranger, MetadataRequest(topics=[]), 20, peer_security(unverified)).brokers


def test_a_console_of_its_own_takes_the_file(broker: BrokerProcess, client: str) -> None:
    command = [sys.executable, "-m", "skylog", "console", "--port", "0", "--config", client]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as console:
        try:
            assert console.stderr is not None
            line = console.stderr.readline()
            assert line.rstrip().endswith(f" of the cluster at {broker.bootstrap}"), line
            url = line.split()[2]
            assert console.stderr.readline() == "log in as admin, or as a user who may alter the cluster\n"
            request = urllib.request.Request(f"{url}/topics", headers={"Accept": "application/json"})
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request, timeout=60)
            found = read_client_config(client)
            login = base64.b64encode(f"{found['sasl.username']}:{found['sasl.password']}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
            with urllib.request.urlopen(request, timeout=60) as response:
                assert "topics" in json.load(response)
        finally:
            console.terminate()


def test_the_console_of_a_broker_has_the_settings_of_the_broker_not_of_the_shell(secrets: Path) -> None:
    assert kafka_settings.CONFIG_VARIABLE == CONFIG_VARIABLE

    def access(settings: dict[str, str]) -> str:
        return BrokerServer._client_settings(SimpleNamespace(config=ServerConfig.parse(settings)))  # type: ignore[arg-type]

    assert access({}) == ""
    certificate = (secrets / "ca.pem").read_text()
    found = access({"listeners": "SSL://127.0.0.1:0", "ssl.truststore.certificates": certificate})
    assert as_librdkafka(read_properties(found)) == {
        "security.protocol": "SSL",
        "ssl.ca.pem": certificate,
    }


def test_the_console_of_a_broker_with_logins_is_for_the_user_whose_rights_it_has(secrets: Path, tmp_path: Path) -> None:
    options = ["--config", str(secrets / "server.properties")]
    with BrokerProcess(tmp_path / "data", console=True, options=options) as running:
        assert "log in to the console as admin" in running.stderr()
        wrong = base64.b64encode(b"admin:wrong").decode()
        for headers in ({}, {"Authorization": f"Basic {wrong}"}):
            request = urllib.request.Request(
                f"{running.console_url}/topics", headers={"Accept": "application/json", **headers}
            )
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request, timeout=60)


def test_no_password_is_in_a_command_line_or_an_environment(secrets: Path, tmp_path: Path) -> None:
    found = re.search(r'password="([^"]+)"', (secrets / "client.properties").read_text())
    assert found is not None
    password = found[1].encode()
    options = ["--config", str(secrets / "server.properties"), "--registry-port", "0"]
    with BrokerProcess(tmp_path / "data", console=True, options=options) as running:
        login = base64.b64encode(b"admin:" + password).decode()
        headers = {"Accept": "application/json", "Authorization": f"Basic {login}"}
        request = urllib.request.Request(f"{running.console_url}/topics", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            assert "topics" in json.load(response)  # the console has started, and logs in
        wait_until(lambda: len(below(running.pid)) == 2, "console and registry", 60)
        for pid in (running.pid, *below(running.pid)):
            for name in ("cmdline", "environ"):
                assert password not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_javas_names_become_those_of_librdkafka(secrets: Path) -> None:
    java, native = (
        read_client_config(secrets / name) for name in ("client.properties", "client.librdkafka.properties")
    )
    java["security.protocol"] = str(java["security.protocol"]).lower()
    assert java == native
    given = {"ssl.keystore.location": "k", "ssl.endpoint.identification.algorithm": "", "ssl.keystore.type": "PEM"}
    assert as_librdkafka(given) == {
        "ssl.certificate.location": "k",
        "ssl.key.location": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }
    with pytest.raises(ConfigError, match="PEM"):
        as_librdkafka({"ssl.truststore.type": "JKS"})
    certificate = (secrets / "ca.pem").read_text()
    for one_line in (certificate.replace("\n", " "), certificate.replace("\n", "\\n")):
        assert as_librdkafka({"ssl.truststore.certificates": one_line}) == {"ssl.ca.pem": certificate}


def test_rules_are_added_checked_listed_and_removed(client: str) -> None:
    def acls(*arguments: str) -> subprocess.CompletedProcess[str]:
        return skylog("acls", *arguments, "--config", client)

    done = acls("check", "alice", "write", "--topic", "clicks")
    assert (done.returncode, done.stdout) == (1, "no, there is no rule for this resource\n"), done.stderr
    done = acls("add", "alice", "read", "write", "--topic", "cl", "--prefix")
    assert done.returncode == 0, done.stderr
    done = acls("check", "alice", "write", "--topic", "clicks")
    assert (done.returncode, done.stdout) == (0, "yes, by this rule: allow User:alice write on topic cl…\n")
    done = acls("check", "admin", "write", "--topic", "clicks")
    assert (done.returncode, done.stdout) == (0, "yes, User:admin is a super user\n")
    done = acls("list", "--topic", "clicks", "--json")
    found = [(row["principal"], row["operation"], row["name"]) for row in json.loads(done.stdout)]
    assert found == [("User:alice", "read", "cl"), ("User:alice", "write", "cl")]
    assert json.loads(acls("list", "bob", "--json").stdout) == []
    assert acls("remove", "alice", "write", "--topic", "cl", "--prefix").returncode == 0
    done = acls("check", "alice", "write", "--topic", "clicks")
    assert (done.returncode, done.stdout) == (1, "no, no rule allows it to User:alice\n")
    assert acls("remove", "alice", "--topic", "cl", "--prefix").returncode == 0
    done = acls("remove", "alice", "--topic", "cl", "--prefix")
    assert (done.returncode, "no such rule" in done.stderr) == (1, True)


def test_rules_are_added_before_the_first_start_and_useless_ones_refused(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    done = skylog("acls", "add", "*", "read", "--group", "g", "--data-dir", data_dir)
    assert done.returncode == 0, done.stderr
    done = skylog("acls", "check", "anybody", "describe", "--group", "g", "--data-dir", data_dir)
    assert done.stdout == "yes, by this rule: allow User:* read on group g\n", done.stderr
    done = skylog("acls", "check", "admin", "delete", "--group", "g", "--data-dir", data_dir)
    assert (done.returncode, "(super users are a setting of brokers" in done.stdout) == (1, True)
    assert skylog("acls", "remove", "*", "--group", "g", "--data-dir", data_dir).returncode == 0
    assert json.loads(skylog("acls", "list", "--json", "--data-dir", data_dir).stdout) == []
    for wrong in (["alice", "read"], ["alice", "cluster-action", "--topic", "t"], ["alice", "fly", "--topic", "t"]):
        assert skylog("acls", "add", *wrong, "--data-dir", data_dir).returncode == 1
