"""Scheduling shuffles: in each round a lane offers one word and reads one lane.

A lane needs the elements that it wants and does not hold. Elements that one lane can offer together
form words; lanes that want the same words may read in step. Augmenting paths assign words to the
lanes that hold them, so that no lane offers more words than there are rounds. How often each reader
then reads each lane is a matrix whose rows and columns sum to at most the number of rounds: it is a
sum of permutations (König, Birkhoff), and each permutation is one round. The lower bound on rounds
is tried first.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import NamedTuple

from layoutalg.algebra.axis import WARP

Registers = tuple[int, ...]  # of a word, in its order; -1: anything
Loads = list[dict[int, int]]
Plan = tuple[Sequence[Registers], list[list["Bundle"]]]  # lanes that read in step, and their words


class Round(NamedTuple):
    """The word that each lane offers, and the lane that each reader reads."""

    offers: dict[int, Registers]
    reads: dict[int, int]


class Bundle(NamedTuple):
    """A word that readers need, and the lanes that hold all of it, a bit each."""

    elements: Registers
    holders: int


@dataclass(frozen=True)
class Warp:
    """The elements that the lanes of a warp hold and want, slot by slot; -1 for none.

    Every element that is wanted is held by some lane; ``pack`` slots share a register. A copy of an
    element is the element: any lane that holds it may offer it.
    """

    held: tuple[Registers, ...]
    wanted: tuple[Registers, ...]
    pack: int

    @cached_property
    def holders(self) -> Mapping[int, int]:
        """Per element the lanes that hold it, a bit each."""
        found: dict[int, int] = {}
        for lane, row in enumerate(self.held):
            for element in row:
                found[element] = found.get(element, 0) | 1 << lane
        return found

    def holds(self, lane: int, element: int) -> bool:
        """Say whether a lane holds an element itself."""
        return bool(self.holders[element] >> lane & 1)

    @cached_property
    def needs(self) -> tuple[Registers, ...]:
        """Per lane the elements that it wants and does not hold, in the order of its slots."""
        return tuple(
            tuple(dict.fromkeys(e for e in row if e >= 0 and not self.holds(lane, e)))
            for lane, row in enumerate(self.wanted)
        )

    @cached_property
    def in_step(self) -> tuple[tuple[Registers, ...], ...]:
        """Ways to put the lanes into groups that read in step, the best ones first.

        First lanes that want the same, or need the same, and agree in some bits of their numbers,
        few groups first. Then, where a word has room for what several lanes want, any neighbours.
        """
        ways = [
            [(frozenset(side), lane & bits) for lane, side in enumerate(sides)]
            for bits in sorted(range(WARP), key=int.bit_count)
            for sides in (self.wanted, self.needs)
        ]
        if self.pack > 1:
            near = [frozenset(self.holders[e] for e in row if e >= 0) for row in self.wanted]
            ways += [
                [(from_, lane & bits) for lane, from_ in enumerate(near)] for bits in range(WARP)
            ]
            asking = [lane for lane, needs in enumerate(self.needs) if needs]
            ways += [
                [(frozenset(), asking.index(lane) // size if lane in asking else -1)
                 for lane in range(len(self.needs))]
                for size in range(2, len(asking) + 1)
            ]  # fmt: skip
            ways += [
                [(frozenset(), lane & bits) for lane in range(len(self.needs))]
                for bits in range(1, WARP - 1)
            ]
        found: dict[tuple[Registers, ...], None] = {}
        for way in ways:
            groups: dict[tuple[frozenset[int], int], list[int]] = {}
            for lane, key in enumerate(way):
                groups.setdefault(key, []).append(lane)
            found[tuple(map(tuple, groups.values()))] = None
        return tuple(found)

    @cached_property
    def asked(self) -> tuple[tuple[int, ...], Mapping[int, int]]:
        """Per lane the registers that it needs, a bit each; and per holders the bits of theirs."""
        numbers: dict[tuple[int, int], int] = {}
        lanes, owners = [], dict[int, int]()
        for needs in self.needs:
            bits = 0
            for e in needs:
                mask = self.holders[e]
                key = mask, self.held[(mask & -mask).bit_length() - 1].index(e) // self.pack
                bit = 1 << numbers.setdefault(key, len(numbers))
                bits, owners[mask] = bits | bit, owners.get(mask, 0) | bit
            lanes.append(bits)
        return tuple(lanes), owners

    def may_do(self, groups: Sequence[Registers], count: int) -> bool:
        """Say whether counting allows so many rounds with registers as they are."""
        lanes, owners = self.asked
        asked = [reduce(or_, (lanes[lane] for lane in group)) for group in groups]
        return all(each.bit_count() <= count for each in lanes) and all(
            sum((each & bits).bit_count() for each in asked) <= count * mask.bit_count()
            for mask, bits in owners.items()
        )

    def registers(self, lanes: Registers) -> list[Bundle]:
        """Return the words that these lanes need together, where registers go as they are."""
        found: dict[tuple[int, int], list[int]] = {}
        for e in dict.fromkeys(e for lane in lanes for e in self.needs[lane]):
            mask = self.holders[e]
            at = self.held[(mask & -mask).bit_length() - 1].index(e)
            found.setdefault((mask, at // self.pack), []).append(e)
        fill = (-1,) * self.pack
        return [Bundle((*part, *fill)[: self.pack], mask) for (mask, _), part in found.items()]

    def bundles(self, lanes: Registers) -> list[Bundle]:
        """Return the fewest words that cover what these lanes still need; each from one lane."""
        elements = dict.fromkeys(e for lane in lanes for e in self.needs[lane])
        return self.bundled(elements, {e: self.holders[e] for e in elements}, lanes)

    def bundled(
        self, elements: Iterable[int], holders: Mapping[int, int], lanes: Registers
    ) -> list[Bundle]:
        """Put elements into words: registers as they are, then those of one destination together.

        Args:
            elements: in the order of the first lane's slots.
            holders: per element the lanes that may offer it.
            lanes: who reads them; the first says where in a word an element should be.
        """
        if self.pack == 1:
            return [Bundle((e,), holders[e]) for e in elements]
        place: dict[int, int] = {}
        for lane in reversed(lanes):
            row = self.wanted[lane]
            place |= {e: slot for slot, e in reversed([*enumerate(row)]) if e >= 0}
        found, rest = list[Bundle](), list[Bundle]()
        alike: dict[int, list[int]] = {}
        for e in elements:
            alike.setdefault(holders[e], []).append(e)
        for mask, group in alike.items():
            for part in self._parts(group, (mask & -mask).bit_length() - 1, place):
                (found if len(part) == self.pack else rest).append(Bundle(part, mask))
        for part, mask in sorted(rest, key=lambda each: each.holders.bit_count()):
            for at, other in enumerate(found):
                if len(other.elements) + len(part) <= self.pack and other.holders & mask:
                    found[at] = Bundle(other.elements + part, other.holders & mask)
                    break
            else:
                found.append(Bundle(part, mask))
        return [Bundle(self._ordered(part, place), mask) for part, mask in found]

    def _parts(self, elements: list[int], lane: int, place: Mapping[int, int]) -> list[Registers]:
        """Cut the elements that some lanes hold into words; only the last may be partial."""
        pack, rest = self.pack, dict.fromkeys(elements)
        found = []
        row = self.held[lane]
        registers = [row[at : at + pack] for at in range(0, len(row), pack)]
        targets: dict[int, list[int]] = {}
        for e in elements:
            targets.setdefault(place[e] // pack, []).append(e)
        for whole in (*registers, *map(tuple, targets.values())):
            if len({*whole}) == pack and all(e in rest for e in whole):
                found.append(whole)
                for e in whole:
                    del rest[e]
        left = [*rest]
        return found + [tuple(left[at : at + pack]) for at in range(0, len(left), pack)]

    def _ordered(self, elements: Registers, place: Mapping[int, int]) -> Registers:
        """Put each element where its destination has it, if that is free."""
        word = [-1] * self.pack
        for e in elements:
            at = place[e] % self.pack
            word[at if word[at] < 0 else word.index(-1)] = e
        return tuple(word)


def least(warp: Warp) -> int:
    """Return a lower bound on the rounds, by counting.

    A round brings a lane one word, of ``pack`` elements, and takes one word from a lane: each lane
    reads what it needs, and what is needed is first offered by lanes that hold it.

    >>> least(Warp(((0, 1), (2, 3)), ((2, 3), (1, -1)), 1))
    2
    """
    reads = max(-(-len(each) // warp.pack) for each in warp.needs)
    asked: dict[int, int] = {}
    for element in dict.fromkeys(e for each in warp.needs for e in each):
        asked[warp.holders[element]] = asked.get(warp.holders[element], 0) + 1
    masks, counts = [*asked], [*asked.values()]
    offers = -(-sum(counts) // (WARP * warp.pack))
    while _assigned(masks, counts, offers * warp.pack) is None:
        offers += 1
    return max(reads, offers)


@lru_cache(maxsize=64)
def rounds(warp: Warp) -> tuple[Round, ...]:
    """Return the rounds in which every lane reads what it needs, in as few as can be found.

    Registers are offered as they are if that takes no more rounds; else elements are put together.
    What a lane holds itself needs no shuffle; it joins a round where there is room.

    >>> [each.reads for each in rounds(Warp(((0, 1), (2, 3)), ((2, 3), (1, 2)), 1))]
    [{0: 1, 1: 0}, {0: 1}]
    """
    count = max(least(warp), *(len(warp.bundles((lane,))) for lane in range(len(warp.needs))))
    plans: list[Plan] = []
    ways = iter(warp.in_step)
    while True:
        whole = (groups for groups in warp.in_step if warp.pack > 1 and warp.may_do(groups, count))
        for groups, words in itertools.chain(
            ((groups, [warp.registers(group) for group in groups]) for groups in whole),
            plans,
            _planned(warp, ways, plans),
        ):
            found = _followed(warp, groups, words, count)
            if found is not None:
                return tuple(found)
        count += 1


def _planned(warp: Warp, ways: Iterator[Sequence[Registers]], plans: list[Plan]) -> Iterator[Plan]:
    """Plan further ways to read in step, elements put together into words; keep the plans."""
    for groups in ways:
        plan = groups, [warp.bundles(group) for group in groups]
        yield plan
        plans.append(plan)


def _followed(
    warp: Warp, groups: Sequence[Registers], words: Sequence[Sequence[Bundle]], count: int
) -> list[Round] | None:
    """Return the rounds of a plan, ``count`` of them; None where it takes more.

    A group that needs more words than there are rounds leaves some out, and each lane of it reads
    those while the others read what it holds itself.
    """
    if any(
        len(group) == 1 and len(mine) > count for group, mine in zip(groups, words, strict=True)
    ):
        return None
    in_order = [sorted(mine, key=lambda each: each.holders) for mine in words]
    late = [mine[count:] for mine in in_order]
    first = [
        mine if len(mine) <= count else ordered[:count]
        for mine, ordered in zip(words, in_order, strict=True)
    ]
    own = _own(warp, groups, first, count)
    for asked in ([[*mine, *near] for mine, near in zip(first, own, strict=True)], first):
        lanes = _shared_out(asked, count)
        if lanes is not None:
            found = list(_in_rounds(warp, groups, lanes, count))
            return found if _caught_up(warp, groups, late, found) else None
    return None


def _caught_up(
    warp: Warp, groups: Sequence[Registers], late: Sequence[Sequence[Bundle]], found: list[Round]
) -> bool:
    """Let lanes read the words that were left out, in rounds that bring them nothing they need."""
    for lane, bundle in ((lane, each) for g, mine in zip(groups, late, strict=True)
                         for lane in g for each in mine):  # fmt: skip
        needs = {*warp.needs[lane]}
        if needs.isdisjoint(bundle.elements):
            continue
        for offers, reads in found:
            if lane in reads and not needs.isdisjoint(offers[reads[lane]]):
                continue
            free = [s for s in _lanes(bundle.holders)
                    if offers.get(s, bundle.elements) == bundle.elements]  # fmt: skip
            if free:
                offers[free[0]], reads[lane] = bundle.elements, free[0]
                break
        else:
            return False
    return True


def _own(
    warp: Warp, groups: Sequence[Registers], words: Sequence[Sequence[Bundle]], count: int
) -> list[list[Bundle]]:
    """Return the words that lanes want and hold themselves, as many as their reads leave room."""
    found = []
    for group, remote in zip(groups, words, strict=True):
        mine: list[Bundle] = []
        if len(group) == 1:
            (lane,) = group
            held = dict.fromkeys(e for e in warp.wanted[lane] if e >= 0 and warp.holds(lane, e))
            mine = warp.bundled(held, dict.fromkeys(held, 1 << lane), group)
        found.append(mine[: max(0, count - len(remote))])
    return found


def _lanes(mask: int) -> list[int]:
    return [lane for lane in range(WARP) if mask >> lane & 1]


def _shared_out(
    words: Sequence[Sequence[Bundle]], count: int
) -> list[dict[int, list[Registers]]] | None:
    """Say which lane offers each word: per group and lane the words; None if some offer too many.

    Args:
        words: per group.
        count: how many words a lane may offer.
    """
    alike: dict[tuple[int, int], list[Registers]] = {}
    for group, bundles in enumerate(words):
        for bundle in bundles:
            alike.setdefault((group, bundle.holders), []).append(bundle.elements)
    loads = _assigned([mask for _, mask in alike], [*map(len, alike.values())], count)
    if loads is None:
        return None
    found: list[dict[int, list[Registers]]] = [{} for _ in words]
    for ((group, _), elements), load in zip(alike.items(), loads, strict=True):
        at = 0
        for lane, taken in sorted(load.items()):
            found[group].setdefault(lane, []).extend(elements[at : at + taken])
            at += taken
    return found


def _assigned(masks: Sequence[int], counts: Sequence[int], room: int) -> Loads | None:
    """Give each count to lanes of its mask, at most ``room`` to a lane; None if that cannot be."""
    total = [0] * WARP
    found: Loads = []
    for mask, count in zip(masks, counts, strict=True):
        lanes = _lanes(mask)
        load: dict[int, int] = {}
        found.append(load)
        while count:
            lane = next((lane for lane in lanes if total[lane] < room), lanes[0])
            taken = min(count, room - total[lane])
            load[lane] = load.get(lane, 0) + taken
            total[lane] += taken
            count -= taken
            if not taken and not _moved_on(masks, found, total, lanes, room):
                return None
    return found


def _moved_on(
    masks: Sequence[int], loads: Loads, total: list[int], lanes: Sequence[int], room: int
) -> bool:
    """Make room in one of some lanes by moving what they have along a path to another lane."""
    came: dict[int, tuple[int, int]] = {}  # lane -> the lane before it and whose count moves
    queue = list(lanes)
    for lane in queue:
        for which, load in enumerate(loads):
            if not load.get(lane):
                continue
            for other in _lanes(masks[which]):
                if other in came or other in lanes:
                    continue
                came[other] = lane, which
                if total[other] < room:
                    total[other] += 1
                    while other not in lanes:
                        before, which = came[other]
                        loads[which][before] -= 1
                        loads[which][other] = loads[which].get(other, 0) + 1
                        other = before
                    total[other] -= 1
                    return True
                queue.append(other)
    return False


def _in_rounds(
    warp: Warp,
    groups: Sequence[Registers],
    words: Sequence[Mapping[int, list[Registers]]],
    count: int,
) -> Iterator[Round]:
    """Split what each group reads from each lane into rounds: permutations, filled up with none.

    In a round as many groups as can fill the same slot.
    """
    left = [[len(words[row].get(lane, ())) if row < len(words) else 0 for lane in range(WARP)]
            for row in range(WARP)]  # fmt: skip
    rows = [count - sum(row) for row in left]
    columns = [count - sum(column) for column in zip(*left, strict=True)]
    row = lane = 0
    while row < WARP and lane < WARP:
        more = min(rows[row], columns[lane])
        left[row][lane] += more
        rows[row] -= more
        columns[lane] -= more
        row, lane = (row + 1, lane) if not rows[row] else (row, lane + 1)
    queues = [
        {lane: _by_slot(warp, group, each) for lane, each in mine.items()}
        for group, mine in zip(groups, words, strict=True)
    ]
    near = [group[0] for group in groups] + [*range(WARP)][len(groups) :]
    while count:
        chosen = _permutation(left, near)
        times = min(left[row][lane] for row, lane in enumerate(chosen))
        for row, lane in enumerate(chosen):
            left[row][lane] -= times
        count -= times
        for _ in range(times):
            here = Round({}, {})
            ready = [
                (group, lane, mine[lane])
                for group, mine, lane in zip(groups, queues, chosen, strict=False)
                if mine.get(lane)
            ]
            slots = Counter(next(iter(queue)) for _, _, queue in ready)
            common = slots.most_common(1)[0][0] if slots else 0
            for group, lane, queue in ready:
                here.offers[lane] = queue.pop(common if common in queue else next(iter(queue)))
                here.reads.update(dict.fromkeys(group, lane))
            yield here


def _by_slot(warp: Warp, group: Registers, words: Iterable[Registers]) -> dict[int, Registers]:
    """Return the words by the first slot that they fill, in order; a second one beyond them all."""
    slot: dict[int, int] = {}
    for lane in group:
        for at, e in enumerate(warp.wanted[lane]):
            slot.setdefault(e, at)
    found: dict[int, Registers] = {}
    for word in words:
        at = min(slot[e] for e in word if e >= 0)
        while at in found:
            at += len(warp.wanted[0])
        found[at] = word
    return dict(sorted(found.items()))


def _permutation(left: Sequence[Sequence[int]], near: Sequence[int]) -> list[int]:
    """Return a lane for each row, all different, where much is left: as much as can be in all.

    Args:
        left: how often each row reads each lane yet.
        near: the lane that a row stands for, and would read first.
    """
    for most in sorted({number for row in left for number in row if number}, reverse=True):
        open_to = [
            sorted((lane for lane in range(WARP) if row[lane] >= most), key=number.__xor__)
            for number, row in zip(near, left, strict=True)
        ]
        row_of: dict[int, int] = {}
        if all(_augmented(row, open_to, row_of, set()) for row in range(WARP)):
            lane_of = {row: lane for lane, row in row_of.items()}
            return [lane_of[row] for row in range(WARP)]
    raise AssertionError("rows and columns with equal sums have a permutation")


def _augmented(
    row: int, open_to: Sequence[Sequence[int]], row_of: dict[int, int], seen: set[int]
) -> bool:
    """Match one more row, moving others to other lanes where needed."""
    for lane in open_to[row]:
        if lane not in seen:
            seen.add(lane)
            if lane not in row_of or _augmented(row_of[lane], open_to, row_of, seen):
                row_of[lane] = row
                return True
    return False
