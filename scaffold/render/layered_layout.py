"""Layered layout of a directed graph: layers from top to bottom, every edge downwards (Sugiyama, Tagawa and Toda, 1981).

`pictures.py` draws the graph of an op with it. In: the size and the layer of each box, edges as pairs of numbers of boxes. Out: a place
for each box, and the points of each edge.
Invariant: boxes of a layer do not overlap, and an edge goes round the boxes of the layers it crosses; equal graphs have equal layouts.

Three steps: an edge spanning several layers gets a dummy in each of them; each layer is sorted by the barycentres of its
neighbours, downwards and upwards, keeping the order with the fewest crossings; then each box moves towards the mean of its
neighbours as far as those beside it allow. Words: the place *wanted* by a box is that mean; an item is a box or a dummy, by its number;
`row` is a layer, `beside` has each item's neighbours in the layer above or below.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SWEEPS = 24  # over all layers, to sort them
MOVES = 60  # of all layers, to place boxes
GAP = 28.0  # between boxes of a layer
DUMMY_GAP = 14.0  # beside a passing edge
RISE = 44.0  # between layers
WEIGHTS = (1, 2, 8)  # of an edge, by how many of its ends are dummies


class Box(NamedTuple):
    """A box's size and layer."""

    width: float
    height: float
    layer: int


class Layout(NamedTuple):
    """The upper left corner of each box, the points of each edge, and the total size."""

    places: tuple[tuple[float, float], ...]
    edges: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def arranged(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Layout:
    """Return the layout of a graph, whose edges lead to later layers only."""
    graph = _with_dummies(boxes, edges)
    order = _ordered(graph)
    centres = _centred(graph, order)
    tops, height = _tops(graph, order)
    # The leftmost edge of all boxes becomes 0.
    least = min(c - b.width / 2 for c, b in zip(centres, graph.boxes, strict=True))
    centres = [centre - least for centre in centres]
    width = max(c + b.width / 2 for c, b in zip(centres, graph.boxes, strict=True))
    places = tuple(
        (round(centres[item] - box.width / 2, 1), round(tops[box.layer], 1))
        for item, box in enumerate(boxes)
    )
    lines = tuple(_points(graph, path, centres, tops) for path in graph.paths)
    return Layout(places, lines, round(width, 1), round(height, 1))


class _Graph(NamedTuple):
    """Boxes, dummies after them, and for each edge its path: a box, dummies, a box."""

    boxes: tuple[Box, ...]
    real: int  # the number of boxes other than dummies
    paths: tuple[tuple[int, ...], ...]
    above: tuple[tuple[int, ...], ...]  # the neighbours of each box, a layer up
    below: tuple[tuple[int, ...], ...]


def _with_dummies(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> _Graph:
    """Return a graph with a dummy box in each layer an edge passes."""
    every, paths = list(boxes), []
    for start, end in edges:
        path = [start]
        for layer in range(boxes[start].layer + 1, boxes[end].layer):
            path.append(len(every))
            every.append(Box(0.0, 0.0, layer))
        paths.append((*path, end))
    above: list[list[int]] = [[] for _ in every]
    below: list[list[int]] = [[] for _ in every]
    for path_ in paths:
        for upper, lower in pairwise(path_):
            above[lower].append(upper)
            below[upper].append(lower)
    return _Graph(
        *(tuple(every), len(boxes), tuple(paths)),
        *(tuple(map(tuple, above)), tuple(map(tuple, below))),
    )


Order = list[list[int]]  # of each layer, from left to right


def _ordered(graph: _Graph) -> Order:
    """Return the order with the fewest crossings found by sweeping over the layers, downwards and upwards in turn."""
    layers = max(box.layer for box in graph.boxes) + 1
    order: Order = [[] for _ in range(layers)]
    for item, box in enumerate(graph.boxes):
        order[box.layer].append(item)
    best, fewest = [list(row) for row in order], _crossings(graph, order)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        rows = range(1, layers) if down else range(layers - 2, -1, -1)
        # Each layer follows the one that was sorted before it.
        beside, step = (graph.above, -1) if down else (graph.below, 1)
        for row in rows:
            places = {item: at for at, item in enumerate(order[row + step])}
            _sort(order[row], places, beside)
        _exchange(graph, order)
        crossings = _crossings(graph, order)
        if crossings < fewest:
            best, fewest = [list(row) for row in order], crossings
    return best


def _sort(
    row: list[int], places: dict[int, int], beside: Sequence[Sequence[int]]
) -> None:
    """Sort a layer, `row`, by the barycentres of its neighbours, for fewer crossing edges; an item without any stays near its position.

    `places` has the positions in the next layer, `beside` for each item its neighbours there.
    """
    keys = {}
    for at, item in enumerate(row):
        near = [places[other] for other in beside[item]]
        keys[item] = sum(near) / len(near) if near else float(at)
    row.sort(key=keys.__getitem__)


def _exchange(graph: _Graph, order: Order) -> None:
    """Exchange boxes side by side in a layer, in place, if it reduces crossings."""
    places = {item: at for row in order for at, item in enumerate(row)}
    for row in order:
        for at in range(len(row) - 1):
            one, other = row[at], row[at + 1]
            if _between(graph, places, one, other) > _between(
                graph, places, other, one
            ):
                row[at : at + 2] = [other, one]
                places |= {other: at, one: at + 1}


def _between(graph: _Graph, places: dict[int, int], left: int, right: int) -> int:
    """Count the crossings between the edges of two boxes of a layer, if `left` stands directly before `right`."""
    return sum(
        places[one] > places[other]
        for beside in (graph.above, graph.below)
        for one in beside[left]
        for other in beside[right]
    )


def _crossings(graph: _Graph, order: Order) -> int:
    """Count the pairs of crossing edges between adjacent layers."""
    count = 0
    for upper, lower in pairwise(order):
        places = {item: at for at, item in enumerate(lower)}
        # Lower ends, ordered by the upper ones: two edges cross if theirs are the other way round.
        ends = [
            places[end]
            for item in upper
            for end in sorted(graph.below[item], key=places.__getitem__)
        ]
        count += sum(
            one > other for at, one in enumerate(ends) for other in ends[at + 1 :]
        )
    return count


def _centred(graph: _Graph, order: Order) -> list[float]:
    """Return the centre of each box: rows are laid out around 0, then each layer in turn moves to the means of its neighbours."""
    centres = [0.0] * len(graph.boxes)
    for row in order:
        for before, item in pairwise(row):
            centres[item] = centres[before] + _distance(graph, before, item)
        middle = (centres[row[0]] + centres[row[-1]]) / 2 if row else 0.0
        for item in row:
            centres[item] -= middle
    for move in range(MOVES):
        for row in order if move % 2 == 0 else order[::-1]:
            wanted = [_wanted(graph, item, centres) for item in row]
            for item, place in zip(row, _spread(graph, row, wanted), strict=True):
                centres[item] = place
    return centres


def _wanted(graph: _Graph, item: int, centres: list[float]) -> float:
    """Return the mean of an item's neighbours, weighted; dummies (from number `graph.real` on) attract each other most.

    So long edges, rows of dummies, are straight.
    """
    near = [*graph.above[item], *graph.below[item]]
    if not near:
        return centres[item]
    weights = [WEIGHTS[(item >= graph.real) + (other >= graph.real)] for other in near]
    pulls = sum(
        weight * centres[other] for weight, other in zip(weights, near, strict=True)
    )
    return pulls / sum(weights)


def _distance(graph: _Graph, left: int, right: int) -> float:
    """Return the least distance between the centres of two neighbours."""
    # Dummies have the numbers from `graph.real` on.
    gap = GAP if max(left, right) < graph.real else DUMMY_GAP
    return (graph.boxes[left].width + graph.boxes[right].width) / 2 + gap


def _spread(graph: _Graph, row: list[int], wanted: list[float]) -> list[float]:
    """Return places near the wanted ones, with order and least distances kept: the mean of pushing boxes right and of pushing them left."""
    right, left = list(wanted), list(wanted)
    for at in range(1, len(row)):
        least = right[at - 1] + _distance(graph, row[at - 1], row[at])
        right[at] = max(right[at], least)
    for at in range(len(row) - 2, -1, -1):
        most = left[at + 1] - _distance(graph, row[at], row[at + 1])
        left[at] = min(left[at], most)
    return [(one + other) / 2 for one, other in zip(right, left, strict=True)]


def _tops(graph: _Graph, order: Order) -> tuple[list[float], float]:
    """Return the upper edge of each layer, and the total height."""
    tops, top = [], 0.0
    for row in order:
        tops.append(top)
        top += max((graph.boxes[item].height for item in row), default=0.0) + RISE
    return tops, top - RISE


def _points(
    graph: _Graph, path: tuple[int, ...], centres: list[float], tops: list[float]
) -> tuple[tuple[float, float], ...]:
    """Return an edge's points: from a box's bottom, through each dummy for its layer's height, to another box's top."""
    first, *between, last = path
    start = graph.boxes[first]
    points = [(centres[first], tops[start.layer] + start.height)]
    # Below a box lower than its layer, first straight down to the layer's end.
    if start.height < tops[start.layer + 1] - RISE - tops[start.layer]:
        points.append((centres[first], tops[start.layer + 1] - RISE))
    for item in between:
        layer = graph.boxes[item].layer
        points.append((centres[item], tops[layer]))
        points.append((centres[item], tops[layer + 1] - RISE))
    points.append((centres[last], tops[graph.boxes[last].layer]))
    return tuple((round(x, 1), round(y, 1)) for x, y in points)
