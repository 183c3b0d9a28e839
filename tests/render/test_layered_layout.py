"""Layouts in layers: nothing overlaps, every edge goes down, and crossings that can be avoided are."""

from itertools import pairwise
from random import Random

import pytest

from scaffold.render.layered_layout import DUMMY_GAP, Box, arranged


def graph(seed: int) -> tuple[list[Box], list[tuple[int, int]]]:
    """Some boxes in some layers, each with edges from earlier layers."""
    random = Random(seed)
    boxes = sorted(
        (
            Box(random.uniform(20, 200), random.uniform(20, 60), random.randrange(6))
            for _ in range(random.randint(2, 16))
        ),
        key=lambda box: box.layer,
    )
    first = boxes[0].layer
    boxes = [box._replace(layer=box.layer - first) for box in boxes]
    edges = [
        (one, other)
        for one, box in enumerate(boxes)
        for other, below in enumerate(boxes)
        if box.layer < below.layer and random.random() < 0.3
    ]
    return boxes, edges


@pytest.mark.parametrize("seed", range(30))
def test_boxes_do_not_overlap_and_edges_go_down(seed: int) -> None:
    boxes, edges = graph(seed)
    found = arranged(boxes, edges)
    assert found == arranged(boxes, edges)
    spans = [
        (box.layer, x, x + box.width)
        for box, (x, _) in zip(boxes, found.places, strict=True)
    ]
    spans.sort()
    for (layer, _, right), (other, left, _) in pairwise(spans):
        assert layer != other or left - right >= DUMMY_GAP - 0.2
    for (x, y), box in zip(found.places, boxes, strict=True):
        assert x >= -0.1 and x + box.width <= found.width + 0.2
        assert y >= 0 and y + box.height <= found.height + 0.2
    for (one, other), points in zip(edges, found.edges, strict=True):
        assert [y for _, y in points] == sorted(y for _, y in points)
        assert points[0][1] == pytest.approx(
            found.places[one][1] + boxes[one].height, abs=0.2
        )
        assert points[-1][1] == pytest.approx(found.places[other][1], abs=0.2)


def test_crossings_that_order_avoids_are_avoided() -> None:
    boxes = [Box(20, 20, 0), Box(20, 20, 0), Box(20, 20, 1), Box(20, 20, 1)]
    found = arranged(boxes, [(0, 3), (1, 2)])
    (a, _), (b, _), (c, _), (d, _) = found.places
    assert (a < b) == (d < c)


def test_a_long_edge_goes_round_the_boxes_of_the_layers_it_crosses() -> None:
    boxes = [Box(40, 20, 0), Box(300, 20, 1), Box(40, 20, 2)]
    found = arranged(boxes, [(0, 1), (1, 2), (0, 2)])
    left = found.places[1][0]
    inside = [x for x, y in found.edges[2][1:-1]]
    assert inside and all(x < left or x > left + 300 for x in inside)
