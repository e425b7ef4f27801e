"""The state machine: random operations against a naive model, replays of prefixes and of a compacted topic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.registry.changes import (
    Change,
    NewSchema,
    delete_config,
    delete_mode,
    delete_subject,
    delete_version,
    register,
    set_config,
    set_mode,
)
from skylog.registry.errors import RegistryError
from skylog.registry.records import Record, StoredSchema, read_schema, schema_record
from skylog.registry.state import LEVEL, Mode, RegistryState
from skylog.schemas import Reference

SUBJECTS = ("a", "b", ":.west:a")
TEXTS = ("S", "T", "U")


def operations(*kinds: str) -> st.SearchStrategy[tuple[Any, ...]]:
    """Operations of these kinds, by default of all. Schemas come and go more often than modes change."""
    subject, text = st.sampled_from(SUBJECTS), st.sampled_from(TEXTS)
    version, flag = st.integers(1, 4) | st.none(), st.booleans()
    known = {
        "register": st.tuples(st.just("register"), subject, text),
        "import": st.tuples(st.just("import"), subject, text, st.integers(1, 6), st.integers(1, 5)),
        "delete_version": st.tuples(st.just("delete_version"), subject, version, flag),
        "delete_subject": st.tuples(st.just("delete_subject"), subject, flag),
        "config": st.tuples(st.just("config"), subject | st.none(), st.sampled_from(["FULL", None])),
        "mode": st.tuples(st.just("mode"), subject | st.none(), st.sampled_from([*Mode, None]), flag),
    }
    chosen = kinds or (
        "register",
        "register",
        "register",
        "import",
        "delete_version",
        "delete_subject",
        "config",
        "mode",
    )
    return st.sampled_from(chosen).flatmap(known.__getitem__)


def decide(state: RegistryState, operation: tuple[Any, ...]) -> Change:
    match operation:
        case ("register", subject, text):
            return register(state, subject, NewSchema("AVRO", text))
        case ("import", subject, text, schema_id, version):
            return register(state, subject, NewSchema("AVRO", text, (), schema_id, version))
        case ("delete_version", subject, version, permanent):
            return delete_version(state, subject, version, permanent=permanent)
        case ("delete_subject", subject, permanent):
            return delete_subject(state, subject, permanent=permanent)
        case ("config", subject, level):
            return delete_config(state, subject) if level is None else set_config(state, subject, {LEVEL: level}, {})
        case ("mode", subject, mode, force):
            if mode is None:
                return delete_mode(state, subject or "a")
            return set_mode(state, subject, mode, force=force)
    raise AssertionError(operation)


def fresh() -> tuple[RegistryState, list[Record]]:
    return RegistryState(), []


def run(state: RegistryState, log: list[Record], operation: tuple[Any, ...]) -> tuple[str, Any]:
    """Decide, append and apply, as the writer does. Return the answer or the error code."""
    try:
        change = decide(state, operation)
    except RegistryError as error:
        return "error", error.code
    for record in change.records:
        log.append(record)
        state.apply(record)
    return "answer", change.answer


def replay(log: Sequence[Record]) -> RegistryState:
    state = RegistryState()
    for record in log:
        state.apply(record)
    return state


def compacted(log: Sequence[Record]) -> list[Record]:
    """Keep the newest record of each key, without tombstones: what compaction leaves in the end."""
    last = {record.key: at for at, record in enumerate(log)}
    return [record for at, record in enumerate(log) if last[record.key] == at and record.value is not None]


@settings(max_examples=80, deadline=None)
@given(st.lists(operations(), max_size=25), st.randoms(use_true_random=False))
def test_a_replay_of_any_prefix_compacted_or_not_gives_the_same_state(steps: list[Any], random: Any) -> None:
    state, log = fresh()
    moments = [(0, state.document())]
    for operation in steps:
        run(state, log, operation)
        moments.append((len(log), state.document()))
    for length, document in random.sample(moments, min(len(moments), 4)):
        assert replay(log[:length]).document() == document
        assert replay(compacted(log[:length])).document() == document
        cut = random.randint(0, length)
        assert replay([*compacted(log[:cut]), *log[cut:length]]).document() == document


@settings(max_examples=80, deadline=None)
@given(st.lists(operations("register", "delete_version", "delete_subject", "delete_subject"), max_size=40))
def test_an_id_never_stands_for_two_texts_even_after_its_schemas_were_deleted(steps: list[Any]) -> None:
    state, log = fresh()
    meaning: dict[tuple[str, int], str] = {}
    for operation in steps:
        kind, answer = run(state, log, operation)
        state = replay(compacted(log))  # every decision may be the first of another writer
        if kind == "answer" and operation[0] == "register":
            key = (context(operation[1]), answer["id"])
            assert meaning.setdefault(key, operation[2]) == operation[2]


def context(subject: str) -> str:
    return subject.rpartition(":")[0]


class NaiveRegistry:
    """The subjects of one context in the mode READWRITE, as a list of everything that was ever registered."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []  # subject, version, id, text, deleted
        self.ids: dict[str, int] = {}
        self.next_id = itertools.count(1)

    def of(self, subject: str, *, live: bool) -> list[dict[str, Any]]:
        found = [each for each in self.rows if each["subject"] == subject and not (live and each["deleted"])]
        return sorted(found, key=lambda each: int(each["version"]))

    def run(self, operation: tuple[Any, ...]) -> tuple[str, Any]:
        match operation:
            case ("register", subject, text):
                return self.register(subject, text)
            case ("delete_subject", subject, permanent):
                return self.delete_subject(subject, permanent)
            case ("delete_version", subject, version, permanent):
                return self.delete_version(subject, version, permanent)
        raise AssertionError(operation)

    def register(self, subject: str, text: str) -> tuple[str, Any]:
        for row in self.of(subject, live=True):
            if row["text"] == text:
                return "answer", {"id": row["id"]}
        everything = self.of(subject, live=False)
        known = [row["id"] for row in self.rows if row["text"] == text]
        schema_id = known[0] if known else next(self.next_id)
        version = everything[-1]["version"] + 1 if everything else 1
        self.rows = [row for row in self.rows if not (row["subject"] == subject and row["id"] == schema_id)]
        self.rows.append({"subject": subject, "version": version, "id": schema_id, "text": text, "deleted": False})
        return "answer", {"id": schema_id}

    def delete_subject(self, subject: str, permanent: bool) -> tuple[str, Any]:
        every, live = self.of(subject, live=False), self.of(subject, live=True)
        if not every:
            return "error", 40401
        if permanent and live:
            return "error", 40405
        if not permanent and not live:
            return "error", 40404
        if permanent:
            self.rows = [row for row in self.rows if row["subject"] != subject]
            return "answer", [row["version"] for row in every]
        for row in live:
            row["deleted"] = True
        return "answer", [row["version"] for row in live]

    def delete_version(self, subject: str, version: int | None, permanent: bool) -> tuple[str, Any]:
        every = self.of(subject, live=False)
        if not every:
            return "error", 40401
        candidates = every if permanent or version is not None else self.of(subject, live=True)
        if version is not None:
            candidates = [row for row in candidates if row["version"] == version]
        if not candidates:
            return "error", 40402
        row = candidates[-1]
        if row["deleted"] != permanent:
            return "error", 40407 if permanent else 40406
        if permanent:
            self.rows.remove(row)
        else:
            row["deleted"] = True
        return "answer", row["version"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        operations("register", "register", "delete_version", "delete_subject").filter(lambda each: ":" not in each[1]),
        max_size=30,
    )
)
def test_random_operations_give_what_a_naive_model_gives(steps: list[Any]) -> None:
    (state, log), model = fresh(), NaiveRegistry()
    for operation in steps:
        assert run(state, log, operation) == model.run(operation), operation
        shown = [
            (each.subject, each.version, each.id, each.text, each.is_deleted) for each in state.schemas(deleted=True)
        ]
        assert sorted(tuple(row.values()) for row in model.rows) == shown


def test_an_id_is_not_given_again_when_compaction_has_removed_its_schema() -> None:
    state, log = fresh()
    operation: tuple[Any, ...]
    for operation in (("register", "a", "S"), ("delete_subject", "a", False), ("delete_subject", "a", True)):
        run(state, log, operation)
    assert run(replay(compacted(log)), log, ("register", "a", "T")) == ("answer", {"id": 2})
    state, log = fresh()
    for operation in (("register", "a", "S"), ("delete_version", "a", 1, False), ("delete_version", "a", 1, True)):
        run(state, log, operation)
    assert run(replay(compacted(log)), log, ("register", "a", "T")) == ("answer", {"id": 2})


def test_a_deleted_subject_stays_deleted_when_compaction_has_removed_its_first_deletion() -> None:
    """An import gives a lower version after the subject was deleted; then it is deleted again."""
    state, log = fresh()
    everywhere = ("mode", None, Mode.IMPORT, True)
    first = [everywhere, ("import", "a", "S", 1, 5), ("delete_subject", "a", False)]
    for operation in [*first, ("import", "a", "T", 2, 2), ("delete_subject", "a", False)]:
        assert run(state, log, operation)[0] == "answer"
    assert replay(compacted(log)).subjects() == state.subjects() == []


# -- Confluent's format

CONFLUENT_TOPIC = [
    ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
    ('{"keytype":"NOOP","magic":0}', None),
    (
        '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        '{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"p","version":1,"magic":1}',
        '{"subject":"p","version":1,"id":2,"schemaType":"PROTOBUF","references":[{"name":"x.proto","subject":"s",'
        '"version":1}],"schema":"syntax = \\"proto3\\";","deleted":false,"md5":"xyz"}',
    ),
    ('{"keytype":"CONTEXT","tenant":"default","context":".west","magic":0}', '{"tenant":"default","context":".west"}'),
    ('{"keytype":"CLEAR_SUBJECT","subject":"gone","magic":0}', '{"subject":"gone"}'),
    ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', '{"subject":"s","version":1}'),
    ('{"keytype":"MODE","subject":"p","magic":0}', '{"subject":"p","mode":"READONLY"}'),
]


def test_a_topic_of_confluents_registry_is_read() -> None:
    state = replay([Record(key.encode(), value.encode() if value else None) for key, value in CONFLUENT_TOPIC])
    assert state.skipped == 0
    assert state.config_in_scope("p") == {LEVEL: "FULL"}
    assert state.mode("p") is Mode.READONLY
    assert state.subjects() == ["p"]
    assert state.subjects(deleted=True) == ["p", "s"]
    found = state.version("p", None)
    assert found is not None
    assert (found.kind, found.references) == ("PROTOBUF", (Reference("x.proto", "s", 1),))
    assert [each.id for each in state.referrers("s", 1)] == [2]
    assert state.next_id(".") == 3


def test_records_are_written_as_confluents_registry_writes_them() -> None:
    state, log = fresh()
    run(state, log, ("register", "s", '"string"'))
    run(state, log, ("config", None, "FULL"))
    run(state, log, ("mode", "s", Mode.READWRITE, False))
    run(state, log, ("delete_subject", "s", False))
    written = [(record.key.decode(), record.value.decode() if record.value else None) for record in log]
    assert written == [
        CONFLUENT_TOPIC[2],
        CONFLUENT_TOPIC[0],
        ('{"keytype":"MODE","subject":"s","magic":0}', '{"subject":"s","mode":"READWRITE"}'),
        CONFLUENT_TOPIC[6],
        ('{"keytype":"MODE","subject":"s","magic":0}', None),
    ]


def test_fields_that_this_registry_does_not_know_survive_a_soft_delete() -> None:
    value = b'{"subject":"s","version":1,"id":1,"schema":"x","deleted":false,"metadata":{"owner":"ada"}}'
    state = replay([Record(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', value)])
    [record] = delete_version(state, "s", 1, permanent=False).records
    assert record.value is not None
    assert orjson.loads(record.value)["metadata"] == {"owner": "ada"}
    assert read_schema(record.value).is_deleted


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"not json", b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"SCHEMA","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":"one"}'),
        (b'{"keytype":"MODE","subject":"s"}', b'{"mode":"SLEEPY"}'),
        (b"", None),
    ],
)
def test_a_record_that_is_none_of_a_registry_is_counted_and_skipped(key: bytes, value: bytes | None) -> None:
    state = replay([Record(key, value), schema_record(StoredSchema("s", 1, 1, "AVRO", "x"))])
    assert state.skipped == 1
    assert state.subjects() == ["s"]


def test_what_is_referred_to_cannot_be_deleted() -> None:
    state, log = fresh()
    run(state, log, ("register", "base", "S"))
    change = register(state, "user", NewSchema("AVRO", "T", (Reference("S", "base", 1),)))
    for record in change.records:
        state.apply(record)
    assert run(state, log, ("delete_subject", "base", False)) == ("error", 42206)
    assert run(state, log, ("delete_version", "base", 1, False)) == ("error", 42206)
    run(state, log, ("delete_subject", "user", False))
    assert run(state, log, ("delete_subject", "base", False)) == ("answer", [1])


def test_registering_again_keeps_a_deleted_version_that_others_refer_to() -> None:
    state, log = fresh()
    run(state, log, ("register", "base", "S"))
    run(state, log, ("delete_version", "base", 1, False))
    for record in register(state, "user", NewSchema("AVRO", "T", (Reference("S", "base", 1),))).records:
        state.apply(record)
    assert run(state, log, ("register", "base", "S")) == ("answer", {"id": 1})
    kept = state.version("base", 1, deleted=True)
    assert kept is not None
    assert kept.text == "S"
