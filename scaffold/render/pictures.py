"""The picture of an op, as SVG and as Mermaid.

In: a `Diagram`: items (an input, a line of code, a saved tensor), each with its `part` (forward, saved or backward) and the numbers of the
items it `reads`. Out: text. Invariant: the same diagram gives the same bytes; an SVG loads nothing, neither fonts nor scripts, and
is legible on a light and on a dark page.
"""

from collections.abc import Iterator, Sequence
from html import escape

from scaffold.derive.diagram import Diagram, Item
from scaffold.render.layered_layout import Box, Layout, arranged

LETTER, LINE = 7.25, 17.0  # the width of a letter, the height of a line
PADDING = 10.0
MARGIN = 24.0
WIDEST = 46  # letters of a line of code in a box
TALLEST = 8  # lines of code in a box
TITLES = {
    "forward": "forward",
    "saved": "saved for the backward",
    "backward": "backward",
}
STYLE = """
svg { --page: #ffffff; --text: #1f2328; --dim: #57606a; --line: #8c959f; --box: #f6f8fa; --in: #ddf4ff; --saved: #fff8c5; --out: #dafbe1; --panel: #d0d7de }
@media (prefers-color-scheme: dark) {
  svg { --page: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #6e7681; --box: #161b22; --in: #0c2d48; --saved: #3b2f08; --out: #12321c; --panel: #444c56 }
}
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--text); white-space: pre }
.dim { fill: var(--dim); font-size: 11px }
.over { paint-order: stroke; stroke: var(--page); stroke-width: 4px }
.title { font-weight: 600; font-size: 13px }
.page { fill: var(--page) }
.panel { fill: none; stroke: var(--panel); stroke-dasharray: 4 4 }
.box { fill: var(--box); stroke: var(--line) }
.input { fill: var(--in) } .saved { fill: var(--saved) } .output, .gradient { fill: var(--out) }
.edge { fill: none; stroke: var(--line); stroke-width: 1.3 }
.tip { fill: var(--line) }
"""


def layers(diagram: Diagram) -> list[int]:
    """Return the layer of each item: below everything it reads, with saved tensors between forward and backward."""
    items = diagram.items
    found: list[int] = []
    last = 0  # the last layer of the forward
    has_saved = any(item.part == "saved" for item in items)
    for item in items:
        below = [found[one] + 1 for one in item.reads]
        if item.part == "forward":
            found.append(max(below, default=0))
            last = max(last, found[-1])
        elif item.part == "saved":  # all in one layer, whatever they are made of
            found.append(last + 1)
        else:  # below the layer of saved tensors, if there are any
            found.append(max([last + (2 if has_saved else 1), *below]))
    return _near_their_readers(items, found)


def _near_their_readers(items: Sequence[Item], found: list[int]) -> list[int]:
    """Move inputs down to the layer just above their first reader in their own part, so edges are short."""
    for at, item in enumerate(items):
        readers = [
            found[other]
            for other, one in enumerate(items)
            if at in one.reads and one.part == item.part
        ]
        if item.kind == "input" and readers:
            found[at] = max(found[at], min(readers) - 1)
    return found


def code_of(item: Item) -> list[str]:
    """Return the lines of a box: long ones are broken, and after too many comes `...`."""
    lines = [line for text in item.lines for line in _folded(text)]
    return lines if len(lines) <= TALLEST else [*lines[: TALLEST - 1], "..."]


def _folded(line: str) -> Iterator[str]:
    """Yield the pieces of a line broken at spaces to at most WIDEST letters; the lines after the first are indented."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    while len(line) > WIDEST:
        at = line.rfind(" ", len(indent) + 1, WIDEST)
        # Without a space to break at, the piece stays too long.
        if at < 0:
            break
        yield line[:at]
        line = indent + line[at + 1 :]
    yield line


# --- SVG.


def as_svg(diagram: Diagram) -> str:
    """Return the diagram as an SVG for a page or a browser."""
    boxes = [
        Box(*_size(item), layer)
        for item, layer in zip(diagram.items, layers(diagram), strict=True)
    ]
    edges = _edges(diagram)
    layout = arranged(boxes, edges)
    title = [diagram.name, *_bytes(diagram)]
    # The frames (`_panels`) reach 12 beyond the boxes on each side, with a title above.
    head = MARGIN + LINE * len(title) + 28
    width = max(layout.width, LETTER * max(map(len, title))) + 2 * MARGIN + 24
    height = layout.height + head + MARGIN + 12
    lines = [
        _opening(width, height),
        f"<title>{escape(f'Forward and backward of {diagram.name}')}</title>",
        f"<style>{STYLE}</style>",
        '<rect class="page" width="100%" height="100%"/>',
        *_texts(title, MARGIN, MARGIN + 6),
        f'<g transform="translate({MARGIN + 12:.0f} {head:.0f})">',
        *(line for points in layout.edges for line in _edge(points)),
        *_panels(diagram, boxes, layout),
        *_boxes(diagram, boxes, layout),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _opening(width: float, height: float) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}"'
    box = f"0 0 {width:.0f} {height:.0f}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {size} role="img">'


def _size(item: Item) -> tuple[float, float]:
    """Return the width and height of an item's box."""
    code = code_of(item)
    letters = max(map(len, [*code, *item.detail]))
    lines = len(code) + len(item.detail)
    return letters * LETTER + 2 * PADDING, lines * LINE + PADDING


def _edges(diagram: Diagram) -> list[tuple[int, int]]:
    return [(one, at) for at, item in enumerate(diagram.items) for one in item.reads]


def _bytes(diagram: Diagram) -> list[str]:
    """Return the lines on the bytes kept for the backward, here and by plain autograd; none if they are unknown."""
    if not diagram.here:
        return []
    return [
        f"kept for the backward: {diagram.here} bytes",
        f"by plain autograd:     {diagram.eager} bytes",
    ]


def _texts(lines: Sequence[str], x: float, y: float) -> Iterator[str]:
    for at, line in enumerate(lines):
        style = "dim" if at else "title"
        yield f'<text class="{style}" x="{x:.1f}" y="{y + LINE * at:.1f}">{escape(line)}</text>'


def _panels(diagram: Diagram, boxes: Sequence[Box], layout: Layout) -> Iterator[str]:
    """Yield the SVG of a frame around each part (forward, saved, backward), with its title."""
    for part, title in TITLES.items():
        rows = [
            (layout.places[at][1], layout.places[at][1] + boxes[at].height)
            for at, item in enumerate(diagram.items)
            if item.part == part
        ]
        if not rows:
            continue
        # A margin of 12, below of 8: `as_svg` leaves room for it, and for the title.
        top, bottom = min(top for top, _ in rows) - 12, max(low for _, low in rows) + 8
        yield (
            f'<rect class="panel" x="-12" y="{top:.1f}" width="{layout.width + 24:.1f}" '
            f'height="{bottom - top:.1f}" rx="8"/>'
        )
        yield f'<text class="dim over" x="-8" y="{top - 5:.1f}">{title}</text>'


def _edge(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Yield the SVG of an edge through these points: a curve, vertical at each of them, and its arrowhead."""
    (x, y), *rest = points
    path = [f"M {x:.1f} {y:.1f}"]
    for at, (to_x, to_y) in enumerate(rest):
        # At the end there is room for the arrowhead.
        end = to_y - 5 if at == len(rest) - 1 else to_y
        middle = (y + end) / 2
        path.append(
            f"C {x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {end:.1f}"
        )
        x, y = to_x, end
    yield f'<path class="edge" d="{" ".join(path)}"/>'
    yield f'<path class="tip" d="M {x - 4:.1f} {y - 3:.1f} L {x + 4:.1f} {y - 3:.1f} L {x:.1f} {y + 5:.1f} Z"/>'


def _boxes(diagram: Diagram, boxes: Sequence[Box], layout: Layout) -> Iterator[str]:
    """Yield each item's box, with its lines of code and, dimmed, its detail."""
    for item, box, (x, y) in zip(diagram.items, boxes, layout.places, strict=True):
        yield (
            f'<rect class="box {item.kind}" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" '
            f'height="{box.height:.1f}" rx="5"/>'
        )
        lines = code_of(item)
        for at, line in enumerate([*lines, *item.detail]):
            style = ' class="dim"' if at >= len(lines) else ""
            # SVG places a text by its baseline, 12.5 below the top of its line.
            yield (
                f'<text{style} x="{x + PADDING:.1f}" y="{y + PADDING / 2 + LINE * at + 12.5:.1f}">'
                f"{escape(line)}</text>"
            )


# --- Mermaid.


def as_mermaid(diagram: Diagram) -> str:
    """Return the diagram in Mermaid's language, drawn by Markdown viewers."""
    lines = ["flowchart TD"]
    for part, title in TITLES.items():
        numbered = [
            (at, item) for at, item in enumerate(diagram.items) if item.part == part
        ]
        if not numbered:
            continue
        lines.append(f'  subgraph {part}["{title}"]')
        lines += [f'    n{at}["{_label(item)}"]' for at, item in numbered]
        lines.append("  end")
    lines += [f"  n{one} --> n{other}" for one, other in _edges(diagram)]
    return "\n".join(lines) + "\n"


def _label(item: Item) -> str:
    """Return the text of a box, with entities for characters special to Mermaid."""
    return "<br/>".join(map(_entities, (*code_of(item), *item.detail)))


def _entities(text: str) -> str:
    # `#` before all others, as their entities contain it.
    text = text.replace("#", "#35;").replace("&", "#amp;")
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
