"""Where two logs part: by examples of KIP-101 and KIP-279, and for any two histories that can come about."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import SkylogError
from skylog.model import NO_EPOCH
from skylog.replication import divergence, truncation_offset
from skylog.replication.divergence import EpochEnd
from skylog.storage.leader_epochs import LeaderEpochs


def history(tmp_path: Path, *entries: tuple[int, int], name: str = "log") -> LeaderEpochs:
    (tmp_path / name).mkdir(exist_ok=True)
    epochs = LeaderEpochs(tmp_path / name)
    for epoch, start_offset in entries:
        epochs.begin(epoch, start_offset)
    return epochs


# -- the leader


def test_a_follower_with_a_prefix_of_the_log_does_not_diverge(tmp_path: Path) -> None:
    epochs = history(tmp_path, (0, 0), (2, 10))
    assert divergence(epochs, 20, 2, 0, NO_EPOCH) is None
    assert divergence(epochs, 20, 2, 7, 0) is None
    assert divergence(epochs, 20, 2, 10, 0) is None
    assert divergence(epochs, 20, 2, 20, 2) is None


def test_a_follower_beyond_the_end_of_its_epoch_diverges_there(tmp_path: Path) -> None:
    epochs = history(tmp_path, (0, 0), (2, 10))
    assert divergence(epochs, 20, 2, 11, 0) == (0, 10)
    assert divergence(epochs, 20, 2, 21, 2) == (2, 20)


def test_a_follower_of_an_epoch_that_the_leader_does_not_have_gets_the_one_before(tmp_path: Path) -> None:
    """KAFKA-6361"""
    epochs = history(tmp_path, (0, 0), (2, 10))
    assert divergence(epochs, 20, 3, 11, 1) == (0, 10)
    assert divergence(epochs, 20, 3, 5, 1) == (0, 10)


def test_a_leader_knows_its_own_epoch_before_it_has_written_anything(tmp_path: Path) -> None:
    """KAFKA-7415"""
    epochs = history(tmp_path, (0, 0))
    assert divergence(epochs, 10, 5, 12, 4) == (0, 10)
    assert divergence(epochs, 10, 5, 10, 0) is None


def test_a_follower_with_older_epochs_than_the_history_ends_where_that_begins(tmp_path: Path) -> None:
    """The log of the leader begins at offset 100: it has copied no more."""
    epochs = history(tmp_path, (5, 100))
    assert divergence(epochs, 120, 6, 90, 2) is None
    assert divergence(epochs, 120, 6, 110, 2) == (2, 100)


# -- the follower


def test_a_follower_truncates_to_the_end_of_the_epoch_that_both_have(tmp_path: Path) -> None:
    epochs = history(tmp_path, (0, 0), (1, 10))
    assert truncation_offset(epochs, 15, EpochEnd(0, 12)) == 10
    assert truncation_offset(epochs, 15, EpochEnd(0, 7)) == 7
    assert truncation_offset(epochs, 15, EpochEnd(1, 12)) == 12


def test_a_follower_without_the_epoch_of_the_leader_goes_back_to_the_one_before_and_asks_again(tmp_path: Path) -> None:
    epochs = history(tmp_path, (0, 0), (3, 10), (4, 14))
    assert truncation_offset(epochs, 15, EpochEnd(2, 12)) == 10


def test_a_follower_never_grows_by_truncation(tmp_path: Path) -> None:
    epochs = history(tmp_path, (0, 0))
    assert truncation_offset(epochs, 5, EpochEnd(0, 9)) == 5
    assert truncation_offset(epochs, 5, EpochEnd(3, 9)) == 5


def test_a_log_of_a_later_epoch_than_that_of_its_leader_is_not_touched(tmp_path: Path) -> None:
    """The metadata store was restored from a backup: nobody knows which of the logs is right."""
    leader, follower = history(tmp_path, (0, 0), name="a"), history(tmp_path, (0, 0), (7, 10), name="b")
    found = divergence(leader, 5, 3, 12, follower.latest)
    assert found is not None
    with pytest.raises(SkylogError, match="later than that of the leader"):
        truncation_offset(follower, 12, found)


# -- any two histories


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Return the epochs of the records of a leader and of a follower, and the leader's epoch.

    They have a common beginning. After that no epoch is in both: an epoch has one leader, and who copies from it
    copies in order.
    """
    epochs = sorted(draw(st.lists(st.integers(0, 8), max_size=6)))
    common = [epoch for epoch in epochs for _ in range(draw(st.integers(1, 3)))]
    tails: list[list[int]] = [[], []]
    last = common[-1] if common else -1
    for epoch in range(last + 1, last + 5):
        owner = draw(st.sampled_from((0, 1, None)))
        if owner is not None:
            tails[owner] += [epoch] * draw(st.integers(1, 3))
    if common:  # one of them may have more of the last common epoch
        tails[draw(st.sampled_from((0, 1)))][:0] = [last] * draw(st.integers(0, 3))
    return common + tails[0], common + tails[1], last + 5 + draw(st.integers(0, 2))


def fill(epochs: LeaderEpochs, log: list[int]) -> LeaderEpochs:
    for offset, epoch in enumerate(log):
        epochs.begin(epoch, offset)
    return epochs


@settings(max_examples=150)
@given(logs=two_logs(), stores_its_epoch=st.booleans())
def test_any_follower_truncates_to_what_it_shares_with_the_leader_and_no_further(
    tmp_path_factory: pytest.TempPathFactory, logs: tuple[list[int], list[int], int], stores_its_epoch: bool
) -> None:
    leader, follower, leader_epoch = logs
    tmp_path = tmp_path_factory.mktemp("logs")
    theirs = fill(history(tmp_path, name="leader"), leader)
    ours = fill(history(tmp_path, name="follower"), follower)
    if stores_its_epoch:
        theirs.begin(leader_epoch, len(leader))
    shared = 0
    while shared < min(len(leader), len(follower)) and leader[shared] == follower[shared]:
        shared += 1
    rounds = 0
    while (found := divergence(theirs, len(leader), leader_epoch, len(follower), ours.latest)) is not None:
        offset = truncation_offset(ours, len(follower), found)
        assert shared <= offset <= len(follower), "more is cut off than differs"
        follower = follower[:offset]
        ours.truncate_to(offset)
        rounds += 1
        assert rounds < 20, "it does not come to an end"
    assert follower == leader[: len(follower)]
