"""A minimum cut of a small graph.

In: capacities of directed edges. Out: the nodes on the source's side of the cut nearest to the source. Invariant: the same
in every run; an edge of capacity `NEVER` is not cut if that can be avoided.
"""

from collections import deque
from collections.abc import Hashable
from itertools import pairwise

NEVER = 10**12


class Flow:
    """Edges with what they still let through."""

    def __init__(self) -> None:
        self.rest: dict[Hashable, dict[Hashable, int]] = {}

    def edge(self, one: Hashable, two: Hashable, capacity: int) -> None:
        """Add an edge, or to its capacity."""
        there = self.rest.setdefault(one, {})
        there[two] = min(NEVER, there.get(two, 0) + capacity)
        self.rest.setdefault(two, {}).setdefault(one, 0)

    def source_side(self, source: Hashable, sink: Hashable) -> frozenset[Hashable]:
        """Push all that goes from source to sink; what can then still be reached."""
        while True:
            before = self._reached(source)
            if sink not in before:
                return frozenset(before)
            path = [sink]
            while path[-1] != source:
                path.append(before[path[-1]])
            self._push(path[::-1])

    def _reached(self, source: Hashable) -> dict[Hashable, Hashable]:
        """The nodes within reach, and the one before each on a shortest path."""
        before, waiting = {source: source}, deque([source])
        while waiting:
            node = waiting.popleft()
            for other, capacity in self.rest.get(node, {}).items():
                if capacity and other not in before:
                    before[other] = node
                    waiting.append(other)
        return before

    def _push(self, path: list[Hashable]) -> None:
        edges = list(pairwise(path))
        most = min(self.rest[one][two] for one, two in edges)
        for one, two in edges:
            self.rest[one][two] -= most
            self.rest[two][one] += most
