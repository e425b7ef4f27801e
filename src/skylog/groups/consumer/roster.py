"""The members of a consumer group by id, static members also by instance id, and who owns which partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer.member import ConsumerMember, Current
from skylog.groups.consumer.ownership import Ownership
from skylog.groups.consumer.partitions import NONE, Partitions


class ConsumerRoster:
    """Members in the order in which they joined. Each partition has one owner at most."""

    def __init__(self) -> None:
        self.members: dict[str, ConsumerMember] = {}
        self._instances: dict[str, str] = {}
        self._ownership = Ownership()

    def add(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        self.index_instance(member)
        self._ownership.change(member.member_id, NONE, member.current.owned)

    def index_instance(self, member: ConsumerMember, before: str | None = None) -> None:
        """Note the instance id of a member. It may have had another one `before`."""
        if before is not None and self._instances.get(before) == member.member_id:
            del self._instances[before]
        if member.metadata.instance_id is not None:
            self._instances[member.metadata.instance_id] = member.member_id

    def drop(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        instance_id = member.metadata.instance_id
        if instance_id is not None and self._instances.get(instance_id) == member.member_id:
            del self._instances[instance_id]
        self._ownership.change(member.member_id, member.current.owned, NONE)

    def move(self, member: ConsumerMember, current: Current) -> None:
        """Set the progress of a member."""
        self._ownership.change(member.member_id, member.current.owned, current.owned)
        member.current = current

    def free(self, partitions: Partitions, member_id: str) -> Partitions:
        """Return those of the partitions that no other member owns."""
        return self._ownership.free(partitions, member_id)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self._instances.get(instance_id, ""))

    def find(self, member_id: str, instance_id: str | None = None) -> ConsumerMember:
        """Return a member. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is None:
            member = self.members.get(member_id)
        else:
            member = self.static_member(instance_id)
            if member is not None and member.member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance '{instance_id}' is another member now")
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"'{instance_id or member_id}' is not a member of the group")
        return member

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members name, None if none names one."""
        names = Counter(each.metadata.assignor for each in self.members.values() if each.metadata.assignor)
        return names.most_common(1)[0][0] if names else None

    @property
    def uses_only_classic(self) -> bool:
        return all(each.classic is not None for each in self.members.values())

    def deadlines_ms(self) -> Iterable[int]:
        for member in self.members.values():
            yield from member.deadlines_ms()
