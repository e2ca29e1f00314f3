"""Scheduling shuffles: in a round each lane offers one register and reads one lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Fetch(NamedTuple):
    """Lane ``reader`` needs ``register`` of ``lane``."""

    reader: int
    lane: int
    register: int


def least(fetches: Sequence[Sequence[Fetch]]) -> int:
    """Return how many rounds are needed at least: reads of one lane, or registers of one lane.

    >>> least([[Fetch(0, 1, 0), Fetch(0, 1, 1)], [Fetch(1, 0, 0)]])
    2
    """
    remote = [fetch for each in fetches for fetch in each if fetch.reader != fetch.lane]
    reads = [sum(f.reader == reader for f in remote) for reader in {f.reader for f in remote}]
    offers = [
        len({f.register for f in remote if f.lane == lane}) for lane in {f.lane for f in remote}
    ]
    return max([0, *reads, *offers])


def rounds(fetches: Sequence[Sequence[Fetch]]) -> list[list[Fetch]]:
    """Return the fetches of one warp as rounds, in as few as can be found.

    Where no register of a lane is read by two others the number is the least possible (König: a
    bipartite graph is edge-coloured with as many colours as its largest degree). What a lane reads
    from itself needs no shuffle; it joins a round where there is room.

    Args:
        fetches: per reader, in order of use.

    >>> [len(r) for r in rounds([[Fetch(0, 1, 0), Fetch(0, 1, 1)], [Fetch(1, 0, 0)]])]
    [2, 1]
    """
    schedule = _Schedule(least(fetches))
    order = [f for use in range(max(map(len, fetches), default=0)) for f in _nth(fetches, use)]
    for fetch in order:
        if fetch.reader != fetch.lane and not schedule.insert(fetch):
            schedule.count += 1
            schedule.insert(fetch)
    for fetch in order:
        if fetch.reader == fetch.lane:
            schedule.put(fetch)
    return [
        [f for (_, at), f in sorted(schedule.read.items()) if at == k]
        for k in range(schedule.count)
    ]


def _nth(fetches: Sequence[Sequence[Fetch]], use: int) -> list[Fetch]:
    return [each[use] for each in fetches if use < len(each)]


class _Schedule:
    """Which register each lane reads and offers in each round."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read: dict[tuple[int, int], Fetch] = {}  # (reader, round) -> what it reads
        self.readers: dict[tuple[int, int], list[Fetch]] = {}  # (lane, round) -> who reads it

    def _open(self, fetch: Fetch, at: int) -> bool:
        """Say whether the lane offers nothing else in a round."""
        served = self.readers.get((fetch.lane, at))
        return not served or served[0].register == fetch.register

    def put(self, fetch: Fetch) -> bool:
        """Put a fetch into a round with room, best where its register is offered already."""
        free = [
            at
            for at in range(self.count)
            if (fetch.reader, at) not in self.read and self._open(fetch, at)
        ]
        if not free:
            return False
        at = min(free, key=lambda at: (not self.readers.get((fetch.lane, at)), at))
        self._add(fetch, at)
        return True

    def _add(self, fetch: Fetch, at: int) -> None:
        self.read[fetch.reader, at] = fetch
        self.readers.setdefault((fetch.lane, at), []).append(fetch)

    def insert(self, fetch: Fetch) -> bool:
        """Put a fetch into a round, exchanging two rounds along a chain where that helps."""
        if self.put(fetch):
            return True
        for one in range(self.count):
            if (fetch.reader, one) in self.read:
                continue
            for other in range(self.count):
                if other == one or not self._open(fetch, other):
                    continue
                chain = self._chain(fetch.lane, one, other)
                if not any(f.reader == fetch.reader for f, _ in chain):
                    self._exchange(chain, one, other)
                    self._add(fetch, one)
                    return True
        return False

    def _chain(self, lane: int, one: int, other: int) -> list[tuple[Fetch, int]]:
        """Return all fetches of two rounds that hang together with those from a lane."""
        lanes, readers = [lane], list[int]()
        seen_lanes, seen_readers = {lane}, set[int]()
        found: list[tuple[Fetch, int]] = []
        while lanes or readers:
            if lanes:
                source = lanes.pop()
                touching = [(f, k) for k in (one, other) for f in self.readers.get((source, k), [])]
                found += touching
            else:
                reader = readers.pop()
                pairs = [(self.read.get((reader, k)), k) for k in (one, other)]
                touching = [(f, k) for f, k in pairs if f is not None]
            for f, _ in touching:
                if f.lane not in seen_lanes:
                    seen_lanes.add(f.lane)
                    lanes.append(f.lane)
                if f.reader not in seen_readers:
                    seen_readers.add(f.reader)
                    readers.append(f.reader)
        return found

    def _exchange(self, chain: list[tuple[Fetch, int]], one: int, other: int) -> None:
        for fetch, at in chain:
            del self.read[fetch.reader, at]
            self.readers.pop((fetch.lane, at), None)
        for fetch, at in chain:
            self._add(fetch, one + other - at)
