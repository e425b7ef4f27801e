"""The job `newsletters`: digests for subscribers, each once; and the sender, which sends each once, after kills too."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin, Producer
from skylog.cli.main import command_line
from skylog.client import TopicNotFoundError
from skylog.errors import ConfigError
from skylog.pipeline import Cluster, Topic
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.newsletters.job import newsletters_job
from skylog.pipeline.jobs.newsletters.ledger import Ledger, State
from skylog.pipeline.jobs.newsletters.mail import Digest, DigestError, Letterhead
from skylog.pipeline.jobs.newsletters.sender import Doubt, NewsletterSender, SendError, SendSettings, send_newsletters
from skylog.pipeline.jobs.newsletters.submission import SmtpServer, Tls
from skylog.pipeline.runnable import JobRun
from skylog.pipeline.status_publisher import ReportedSchedule
from skylog.testing import BrokerProcess, consume, wait_until
from tests.pipeline.jobs.dying_sender import STEPS
from tests.pipeline.jobs.mail_server import PASSWORD, USER, Mailbox, mail_server, secured
from tests.proof import in_proof
from tests.spark.conftest import Commands

ROOT = Path(__file__).parents[3]
YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
MARCH_1_MS = 1_772_366_400_000  # noon
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HEAD = Letterhead("news@site.example", "https://site.example")


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"newsletters-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2)
    return name


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def port(mailbox: Mailbox) -> Iterator[int]:
    with mail_server(mailbox) as port:
        yield port


def digest(user: str, day: str = YESTERDAY, **more: Any) -> dict[str, Any]:
    pages = [{"page": "/comet", "title": "A comet", "section": "news", "text": ".Look up"}]
    return {"user": user, "address": f"{user}@home.example", "name": user.title(), "day": day, "pages": pages, **more}


def write(bootstrap: str, topic: str, *values: Any) -> None:
    with Producer(bootstrap) as producer, producer.batch():
        for value in values:
            producer.send(topic, value, value.get("user") if isinstance(value, dict) else None)


def send(bootstrap: str, topic: str, port: int, **settings: Any) -> Counter[str]:
    chosen = SendSettings(SmtpServer(port=port), HEAD, **settings)
    return send_newsletters(Cluster(bootstrap), topic, chosen, group=topic, once=True)


# -- the digests


def test_each_subscriber_gets_the_pages_of_a_day_once_when_it_is_over(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap = skylog_broker.bootstrap
    pages, users, clock = f"{topic}-pages", f"{topic}-users", f"{topic}-views"
    for each in (pages, users, clock):
        Admin(bootstrap).create_topic(each, partitions=1)

    def publish(page: str, at_ms: int, **value: str) -> None:
        with Producer(bootstrap) as producer:
            producer.send(pages, value or None, page, timestamp_ms=at_ms).result(20)

    def run() -> list[dict[str, Any]]:
        job = newsletters_job(bootstrap, pages, users, Topic(topic), clocks=[clock])
        job.run(spark, bootstrap, once=True, state=tmp_path / "state")
        found = [json.loads(message.value or b"") for message in consume(bootstrap, topic)]
        return sorted(found, key=lambda each: (each["day"], each["user"]))

    with Producer(bootstrap) as producer, producer.batch():
        producer.send(users, {"address": "ada@old.example", "sections": ["news"]}, "ada")
        producer.send(users, {"address": "ada@home.example", "name": "Ada", "sections": ["news", "jobs"]}, "ada")
        producer.send(users, {"address": "bob@home.example", "sections": ["*"]}, "bob")
        producer.send(users, {"address": "eve@home.example", "sections": ["events"]}, "eve")
        producer.send(users, {"address": "gone@home.example", "sections": ["*"]}, "gone")
        producer.send(users, None, "gone")
        producer.send(users, {"address": "none@home.example"}, "none")
    publish("/comet", MARCH_1_MS, title="A comet", section="news", text="x" * 400)
    publish("/typo", MARCH_1_MS + 1, title="A tyop", section="guides", text="")
    publish("/typo", MARCH_1_MS + 2, title="A typo", section="guides", text="")
    publish("/deleted", MARCH_1_MS + 3, title="Deleted", section="news", text="")
    publish("/deleted", MARCH_1_MS + 4)
    assert run() == []
    with Producer(bootstrap) as producer:  # the day is over, as another topic shows
        producer.send(clock, {"event": "page.view"}, timestamp_ms=MARCH_1_MS + DAY_MS).result(20)
    first = run()
    assert [(each["day"], each["user"], each["address"]) for each in first] == [
        ("2026-03-01", "ada", "ada@home.example"),
        ("2026-03-01", "bob", "bob@home.example"),
    ]
    assert first[0]["pages"] == [{"page": "/comet", "title": "A comet", "section": "news", "text": "x" * 300}]
    assert [each["title"] for each in first[1]["pages"]] == ["A comet", "A typo"]
    publish("/fair", MARCH_1_MS + DAY_MS, title="A fair", section="events", text="On the pier.")
    publish("/late", MARCH_1_MS + 5, title="Too late for its day", section="news", text="")
    publish("/next", MARCH_1_MS + 2 * DAY_MS, title="Of another day", section="news", text="")
    assert [(each["day"], each["user"]) for each in run()[2:]] == [("2026-03-02", "bob"), ("2026-03-02", "eve")]


def test_options_of_the_pages_do_not_limit_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--option startingOffsets=…` names the topics of pages, and `latest` would leave no user."""
    monkeypatch.setattr("skylog.pipeline.jobs.newsletters.job.subscribers", lambda users: users)
    monkeypatch.setattr("skylog.pipeline.jobs.newsletters.job.digests", lambda records, users, *_: users)
    reader = MagicMock()
    reader.format.return_value = reader
    cluster = Cluster("h:1", {"startingOffsets": "latest", "kafka.client.id": "news"})
    records: Any = SimpleNamespace(sparkSession=SimpleNamespace(read=reader))
    newsletters_job(cluster, "pages", "users")(records)
    reader.options.assert_called_once_with(
        **{"kafka.bootstrap.servers": "h:1", "kafka.client.id": "news", "subscribe": "users"}
    )


# -- the mails


def test_a_digest_is_always_the_same_mail() -> None:
    one = Digest.decode(json.dumps(digest("ada")).encode())
    assert HEAD.mail(one).as_bytes() == HEAD.mail(one).as_bytes()
    ids = {HEAD.message_id(Digest.decode(json.dumps(digest(*each)).encode())) for each in (("ada",), ("bob",))}
    assert len(ids) == 2
    mail = HEAD.mail(one)
    text, page = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert page is not None
    assert "https://site.example/comet\n\n.Look up" in text.get_content()


@pytest.mark.parametrize("field", ["name", "page", "title", "text"])
def test_what_users_have_written_is_no_markup_of_the_mail(field: str) -> None:
    fields = {"page": "/a", "title": "A", "text": "B", field: """<b onload='x'>"&amp;"""}
    value = digest("eve", name=fields.pop("name", "Eve"), pages=[fields])
    mail = HEAD.mail(Digest.decode(json.dumps(value).encode())).get_body(("html",))
    assert mail is not None
    assert "&lt;b onload=&#39;x&#39;&gt;&#34;&amp;amp;" in mail.get_content()
    assert "<b" not in mail.get_content()


@pytest.mark.parametrize(("page", "link"), [("/a?b=1", "/a?b=1"), ("@evil.example", "/@evil.example"), ("a", "/a")])
def test_links_of_a_mail_stay_on_the_site(page: str, link: str) -> None:
    value = digest("eve", pages=[{"page": page, "title": "A"}])
    mail = HEAD.mail(Digest.decode(json.dumps(value).encode()))
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert html is not None
    assert f"\nhttps://site.example{link}\n" in text.get_content()
    assert f'href="https://site.example{link}"' in html.get_content()


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (Letterhead("news@site.example", subject="{date}"), "invalid sender"),
        (Letterhead("news@site.example\nBcc: x"), "invalid sender"),
    ],
)
def test_a_letterhead_with_which_no_mail_can_be_written_is_refused_at_once(head: Letterhead, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SendSettings(SmtpServer(), head).check()
    with pytest.raises(ConfigError, match="below 60 days"):
        SendSettings(SmtpServer(), HEAD, max_age_days=60).check()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"address": "a@b.example\nBcc: all@b.example"}, "cannot write to"),
        ({"address": "no address"}, "cannot write to"),
        ({"address": "ada@x..org"}, "cannot write to"),
        ({"address": "<ada@x.org>"}, "cannot write to"),
        ({"address": "ada@[x"}, "cannot write to"),
        ({"address": " "}, "cannot write to"),
        ({"address": "å@b.example"}, "not ASCII"),
        ({"name": "Eve\r\nBcc: all@b.example"}, "cannot write to"),
    ],
)
def test_an_address_that_cannot_be_written_to_is_an_error(value: dict[str, str], problem: str) -> None:
    with pytest.raises(DigestError, match=problem):
        HEAD.mail(Digest.decode(json.dumps(digest("eve", **value)).encode()))


@pytest.mark.parametrize(("every_s", "used_s"), [(0, 60), (5, 5), (None, None)])
def test_users_are_read_in_rounds_also_if_the_job_runs_continuously(
    monkeypatch: pytest.MonkeyPatch, every_s: float | None, used_s: float | None
) -> None:
    used: list[float | None] = []
    monkeypatch.setattr(Job, "run_with", lambda _self, _spark, _cluster, run: used.append(run.schedule.every_s))
    run = JobRun(ReportedSchedule(every_s))
    newsletters_job("localhost:1", "pages", "users").run_with(MagicMock(), Cluster("localhost:1"), run)
    assert used == [used_s]


# -- sending


def test_each_digest_is_sent_once_and_what_cannot_be_sent_is_left_out(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int
) -> None:
    bootstrap = skylog_broker.bootstrap
    mailbox.unknown_addresses = {"bob@home.example"}
    write(bootstrap, topic, digest("ada"), digest("bob"), digest("ada"), b"no digest", digest("old", "2026-01-01"))
    write(bootstrap, topic, digest("eve", address="no address"), digest("ada", "2999-01-01"))
    assert send(bootstrap, topic, port) == {"sent": 2, "rejected": 2, "done before": 1, "unreadable": 1, "too old": 1}
    assert send(bootstrap, topic, port) == {}
    assert mailbox.addresses() == ["ada@home.example"] * 2
    first, _ = mailbox.mails()
    assert (first["To"], first["From"]) == ("Ada <ada@home.example>", "news@site.example")
    assert "\r\n.Look up" in mailbox.received[0][1].decode()
    write(bootstrap, topic, digest("ada"))  # the job has lost its state, and writes digests again
    assert send(bootstrap, topic, port) == {"done before": 1}
    states = [json.loads(message.value or b"")["state"] for message in consume(bootstrap, f"{topic}__sent")]
    assert Counter(states) == {"sending": 2, "sent": 2, "rejected": 2}


def test_a_mail_that_the_server_does_not_accept_now_is_sent_later(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skylog.pipeline.jobs.newsletters.sender._FIRST_PAUSE_S", 0.05)
    mailbox.responses = ["451 4.3.0 try again later", "452 4.2.2 full", "554 5.6.0 not for us"]
    write(skylog_broker.bootstrap, topic, digest("ada"))
    assert send(skylog_broker.bootstrap, topic, port) == {"rejected": 1}
    mailbox.responses = ["451 4.3.0 try again later"]
    write(skylog_broker.bootstrap, topic, digest("bob"))
    with pytest.raises(SendError, match=r"bob was not sent: .*451 4.3.0 try again later"):
        send(skylog_broker.bootstrap, topic, port, patience_s=0)
    assert send(skylog_broker.bootstrap, topic, port) == {"sent": 1}
    assert mailbox.addresses() == ["bob@home.example"]


REFUSALS = [  # of any mail, with one wrong setting
    ("MAIL", "530 5.7.0 Must issue a STARTTLS command first"),
    ("MAIL", "550 5.1.8 Sender address rejected"),
    ("RCPT", "554 5.7.1 Relay access denied"),
    ("RCPT", "550 relay not permitted"),
    ("RCPT", "530 Authentication required"),
    ("DATA", "554 no valid recipients"),
]


def test_a_server_that_refuses_the_sender_ends_the_sender_and_rejects_nothing(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int
) -> None:
    settings = SendSettings(SmtpServer(port=port), HEAD)
    ada, bob = (message(user) for user in ("ada", "bob"))
    with Ledger(Cluster(skylog_broker.bootstrap), topic) as ledger:
        for command, response in REFUSALS:
            mailbox.refusals = {command: response}
            sender = NewsletterSender(ledger, settings, Event())
            with pytest.raises(SendError, match=f"ada was not sent: .*{response}; the server would refuse every mail"):
                sender.take(ada)
            sender.close()
        assert consume(skylog_broker.bootstrap, ledger.topic) == []
        mailbox.refusals = {}
        sender = NewsletterSender(ledger, settings, Event())
        assert all(sender.take(each) for each in (ada, bob))
        assert sender.counts == {"sent": 2}
        sender.close()


def test_a_policy_that_refuses_one_address_does_not_end_the_sender(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int
) -> None:
    """The mail before was accepted. But of two refusals in a row, the second ends it."""
    with Ledger(Cluster(skylog_broker.bootstrap), topic) as ledger:
        sender = NewsletterSender(ledger, SendSettings(SmtpServer(port=port), HEAD), Event())
        assert sender.take(message("ada"))
        mailbox.refusals = {"RCPT": "550 5.7.1 recipient does not want mails of yours"}
        assert sender.take(message("bob"))
        assert sender.counts == {"sent": 1, "rejected": 1}
        with pytest.raises(SendError, match="eve was not sent"):
            sender.take(message("eve"))
        sender.close()


def message(user: str) -> Any:
    return SimpleNamespace(value=json.dumps(digest(user)).encode())


COPIES = {  # of a mail whose sender was killed when …, by what is done in doubt
    "the mail is submitted without its end": {Doubt.RESEND: 1},
    "the ledger says sending": {Doubt.RESEND: 1, Doubt.SKIP: 0},
    "the end of the mail is sent": {Doubt.RESEND: 2, Doubt.SKIP: 1},
    "the server has accepted": {Doubt.RESEND: 2, Doubt.SKIP: 1},
    "the ledger says sent": {Doubt.RESEND: 1},
    "the group has committed": {Doubt.RESEND: 1},
}


@pytest.mark.timeout(180)
def test_senders_that_are_killed_at_each_step(skylog_broker: BrokerProcess, mailbox: Mailbox, port: int) -> None:
    """None is lost with `resend`, and a second copy has the same bytes. None is sent twice with `skip`."""
    assert COPIES.keys() == STEPS.keys()
    bootstrap, lines, expected = skylog_broker.bootstrap, list[str](), dict[str, int]()
    for step, copies in COPIES.items():
        for doubt, count in copies.items():
            topic, user = f"dying-{uuid.uuid4().hex[:8]}", f"user{len(lines)}"
            Admin(bootstrap).create_topic(topic, partitions=1)
            write(bootstrap, topic, digest(user))
            lines.append(f"{topic}\t{step}\t{doubt}")
            expected[f"{user}@home.example"] = count
    command = [sys.executable, "-m", "tests.pipeline.jobs.dying_sender", bootstrap, str(port)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=150, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert Counter(mailbox.addresses()) == {address: count for address, count in expected.items() if count}
    assert len(set(mailbox.received)) == sum(1 for count in expected.values() if count)


def test_of_two_senders_of_the_same_digest_the_first_in_the_ledger_sends(
    skylog_broker: BrokerProcess, topic: str
) -> None:
    """One was believed dead, and its partition has another owner."""
    one = Digest.decode(json.dumps(digest("ada")).encode())
    cluster = Cluster(skylog_broker.bootstrap)
    with Ledger(cluster, topic) as first, Ledger(cluster, topic) as second:
        attempt = first.claim(one)
        assert attempt is not None
        assert second.claim(one) is None
        assert second.entry(one).open == attempt
        first.record(one, State.FAILED, attempt)
        other = second.claim(one)  # has not seen that the attempt failed, but its own record is behind it
        assert other is not None
        assert first.claim(one) is None
        third = first.claim(one, takes_over=other)
        assert third is not None
        second.record(one, State.SENT, other)
        assert first.claim(one, takes_over=third) is None
        assert first.entry(one).final is State.SENT
    with Ledger(cluster, topic) as later:
        assert later.entry(one).final is State.SENT


def test_a_server_with_tls_and_a_login(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, tmp_path: Path
) -> None:
    write(skylog_broker.bootstrap, topic, digest("ada"))
    with mail_server(mailbox, **secured(tmp_path)) as port:

        def settings(password: str) -> SendSettings:
            server = SmtpServer("127.0.0.1", port, Tls.STARTTLS, USER, password, str(tmp_path / "ca.pem"), 20)
            return SendSettings(server, HEAD)

        with pytest.raises(ConfigError, match="rejects the login"):
            send_newsletters(Cluster(skylog_broker.bootstrap), topic, settings("wrong"), group=topic, once=True)
        done = send_newsletters(Cluster(skylog_broker.bootstrap), topic, settings(PASSWORD), group=topic, once=True)
    assert done == {"sent": 1}
    with pytest.raises(ConfigError, match="unencrypted"):
        SmtpServer("mail.example", user=USER, password=PASSWORD).check()


def test_a_misspelled_topic_gets_no_ledger(skylog_broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(TopicNotFoundError):
        send(skylog_broker.bootstrap, f"{topic}s", 1)
    assert f"{topic}s__sent" not in {each.name for each in Admin(skylog_broker.bootstrap).list_topics()}


@in_proof
def test_a_sender_that_is_stopped_has_committed_what_it_has_sent(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int
) -> None:
    stop, settings = Event(), SendSettings(SmtpServer(port=port), HEAD)
    thread = Thread(
        target=send_newsletters,
        args=(Cluster(skylog_broker.bootstrap), topic, settings),
        kwargs={"group": topic, "stop": stop},
    )
    thread.start()
    write(skylog_broker.bootstrap, topic, *(digest(f"user{n}") for n in range(5)))
    wait_until(lambda: len(mailbox.received) == 5, "five mails", 30)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert send(skylog_broker.bootstrap, topic, port) == {}


# -- the commands


def test_the_command_writes_digests_and_the_other_sends_them(
    commands: Commands, skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int, tmp_path: Path
) -> None:
    bootstrap = skylog_broker.bootstrap
    pages, users = f"{topic}-pages", f"{topic}-users"
    noon_ms = int(time.time() * 1000) // DAY_MS * DAY_MS - DAY_MS // 2
    with Producer(bootstrap) as producer, producer.batch():
        producer.send(users, {"address": "ada@home.example", "sections": ["news"]}, "ada")
        for at_ms in (noon_ms, noon_ms + DAY_MS):
            producer.send(pages, {"title": "A comet", "section": "news"}, f"/{at_ms}", timestamp_ms=at_ms)
    run = ["pipeline", "run", "newsletters", pages, "--users", users, "--into", topic, "--once"]
    commands.run(*run, "--bootstrap", bootstrap, directory=tmp_path)
    run = ["pipeline", "send", topic, "--from", "news@site.example", "--port", str(port), "--once", "--json"]
    sent = CliRunner().invoke(command_line(), [*run, "--group", topic, "--bootstrap", bootstrap])
    assert sent.exit_code == 0, sent.output
    assert json.loads(sent.stdout) == {"sent": 1}
    assert mailbox.addresses() == ["ada@home.example"]


def test_the_command_fails_if_every_digest_is_rejected(
    skylog_broker: BrokerProcess, topic: str, mailbox: Mailbox, port: int
) -> None:
    mailbox.unknown_addresses = {"ada@home.example"}
    write(skylog_broker.bootstrap, topic, digest("ada"))
    run = ["pipeline", "send", topic, "--from", "news@site.example", "--port", str(port), "--once", "--json"]
    run += ["--group", topic, "--bootstrap", skylog_broker.bootstrap]
    done = CliRunner().invoke(command_line(), run)
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"rejected": 1})
    again = CliRunner().invoke(command_line(), run)
    assert (again.exit_code, json.loads(again.stdout)) == (0, {})
