"""Random lives of a group: whatever members do and however time passes, the protocol's promises hold.

Members are modelled as clients see them: an id, a generation, and at most one request that waits. Strangers and old
generations are part of the game, since a member that was thrown out goes on with what it knows.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skylog.errors import ErrorCode
from skylog.groups import Group, GroupConfig, Groups, GroupState, JoinResponse, SyncResponse

from .driver import REBALANCE_MS, Asked, GroupDriver, subscription

SESSION_MS = 6_000
PROTOCOLS = (
    (("range", subscription("t")), ("roundrobin", subscription("t"))),
    (("roundrobin", subscription("t")), ("range", subscription("t"))),
    (("sticky", subscription("t")), ("range", subscription("t", "u"))),
    (("cooperative-sticky", subscription("t")),),
)
INSTANCES = (None, None, "static-1", "static-2")
PATIENCE_MS = 2 * (REBALANCE_MS + SESSION_MS)


class Client:
    """A member from its own side. `request` waits for an answer; `since_ms` is when it was sent."""

    def __init__(self, instance: str | None, protocols: tuple[tuple[str, bytes], ...], version: int) -> None:
        self.instance = instance
        self.protocols = protocols
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.request: Asked | None = None
        self.since_ms = 0


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver()
        self.group = self.driver.group
        self.clients: list[Client] = []
        self.last_generation = 0

    def client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    # -- requests

    @rule(instance=st.sampled_from(INSTANCES), protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from((3, 5, 9)))
    def appear(self, instance: str | None, protocols: tuple[tuple[str, bytes], ...], version: int) -> None:
        if len(self.clients) < 6:
            self.clients.append(Client(instance, protocols, version))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5), changed=st.booleans())
    def join(self, number: int, changed: bool) -> None:
        client = self.client(number)
        if changed:
            client.protocols = PROTOCOLS[(PROTOCOLS.index(client.protocols) + 1) % len(PROTOCOLS)]
        was_member = client.member_id in self.group.members
        old_state = self.group.state
        client.request = self.driver.join(
            client.member_id,
            instance=client.instance,
            protocols=client.protocols,
            session_ms=SESSION_MS,
            version=client.version,
        )
        client.since_ms = self.driver.now_ms
        self.read_answer(client)
        answer = self.driver.answers.get(client.request) if client.request else None
        if was_member and old_state is GroupState.PREPARING and isinstance(answer, JoinResponse):
            assert answer.error is not ErrorCode.UNKNOWN_MEMBER_ID

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def sync(self, number: int) -> None:
        client = self.client(number)
        if not client.member_id:
            return
        given = {member_id: f"{self.group.generation}/{member_id}".encode() for member_id in self.group.members}
        was_member = client.member_id in self.group.members
        client.request = self.driver.sync(
            client.member_id, given, instance=client.instance, generation=client.generation
        )
        client.since_ms = self.driver.now_ms
        answer = self.driver.answers.get(client.request)
        if was_member and isinstance(answer, SyncResponse):
            assert answer.error is not ErrorCode.UNKNOWN_MEMBER_ID
        self.read_answer(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def heartbeat(self, number: int) -> None:
        client = self.client(number)
        is_member = client.member_id in self.group.members
        code = self.driver.heartbeat(client.member_id, client.generation, client.instance)
        if is_member:
            assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
        else:
            assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def commit(self, number: int) -> None:
        client = self.client(number)
        code = self.driver.commit(client.member_id, client.generation, client.instance)
        if code is ErrorCode.NONE and client.generation >= 0:
            assert client.generation == self.group.generation
            assert client.member_id in self.group.members

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        client = self.client(number)
        if client.member_id:
            self.driver.leave(client.member_id, client.instance)
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def die(self, number: int) -> None:
        self.clients.remove(self.client(number))

    @rule(duration_ms=st.sampled_from((50, 700, 3_100, SESSION_MS, REBALANCE_MS)))
    def time_passes(self, duration_ms: int) -> None:
        self.driver.pass_ms(duration_ms, step_ms=max(50, duration_ms // 20))

    @rule()
    def storing_fails(self) -> None:
        self.driver.run(self.group.storing_failed(self.driver.now_ms))

    # -- responses

    def read_answer(self, client: Client) -> None:
        if client.request is None or self.driver.waits(client.request):
            return
        answer = self.driver.answers[client.request]
        client.request = None
        if answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1
        elif isinstance(answer, JoinResponse) and answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id, client.generation = answer.member_id, answer.generation
        elif isinstance(answer, SyncResponse) and answer.error is ErrorCode.NONE and answer.assignment:
            generation, _, named = answer.assignment.decode().partition("/")
            assert int(generation) == client.generation
            assert named == client.member_id or client.instance is not None

    # -- invariants

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.group.generation >= self.last_generation
        self.last_generation = self.group.generation

    @invariant()
    def no_request_waits_longer_than_the_timeouts_allow(self) -> None:
        for client in self.clients:
            self.read_answer(client)
            if client.request is not None:
                assert self.driver.now_ms - client.since_ms <= PATIENCE_MS, self.group.state

    @invariant()
    def members_and_states_agree(self) -> None:
        group = self.group
        members = group.members.values()
        assert (group.state is not GroupState.EMPTY) or not members
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert group.leader in group.members
            assert all(group.protocol in member.supports() for member in members)
            assert all(member.join is None for member in members)
        if group.state is not GroupState.COMPLETING:
            assert all(member.sync is None for member in members)
        instances = [member.instance_id for member in members if member.instance_id is not None]
        assert len(instances) == len(set(instances))

    @invariant()
    def assignments_are_of_members_of_their_generation(self) -> None:
        for member_id, member in self.group.members.items():
            if self.group.state is GroupState.STABLE and member.assignment:
                generation, _, named = member.assignment.decode().partition("/")
                assert int(generation) == self.group.generation
                assert named == member_id or member.instance_id is not None  # a static member inherits

    @invariant()
    def the_stored_state_is_read_back_as_it_was(self) -> None:
        if self.group.state not in (GroupState.STABLE, GroupState.EMPTY) or self.group.generation == 0:
            return
        groups = Groups(GroupConfig())
        key, value = groups.group_record(self.group, 1)
        assert groups.replay(key, value) == "g"
        copy = groups.find("g")
        assert isinstance(copy, Group)
        assert (copy.state, copy.generation, copy.leader) == (
            self.group.state,
            self.group.generation,
            self.group.leader,
        )
        assert (copy.protocol, copy.protocol_type) == (self.group.protocol, self.group.protocol_type)
        assert copy.members.keys() == self.group.members.keys()
        for member_id, member in self.group.members.items():
            again = copy.members[member_id]
            assert again.assignment == member.assignment
            assert again.instance_id == member.instance_id
            assert again.metadata(copy.protocol) == member.metadata(copy.protocol)
        assert groups.group_record(copy, 1) == (key, value)

    def teardown(self) -> None:
        """When all members are silent, every request gets a response and the group becomes empty."""
        waiting = [client.request for client in self.clients if client.request is not None]
        self.driver.pass_ms(4 * (REBALANCE_MS + SESSION_MS) + 300_000, step_ms=1_000)
        assert all(not self.driver.waits(asked) for asked in waiting)
        assert self.group.state is GroupState.EMPTY
        assert self.group.is_idle


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
