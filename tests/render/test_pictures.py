"""Pictures: well formed, the same every time, without anything from elsewhere."""

import re
from xml.etree import ElementTree

import pytest

from scaffold.derive import derive
from scaffold.derive.diagram import Diagram, diagram
from scaffold.errors import Location
from scaffold.render.pictures import as_mermaid, as_svg, code_of
from scaffold.spec.build import build

OPS = {
    "linear": ("x[N, D], w[E, D], b[E]?", "x @ w.t() + b"),
    "rms_norm": (
        "x[..., D], weight[D], eps: float = 1e-6",
        "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight",
    ),
    "attention": (
        "query[..., T, D], key[..., S, D], value[..., S, E], scale: float = 1.0",
        "torch.softmax(query @ key.mT * scale, dim=-1) @ value",
    ),
    "cross_entropy": (
        "logits[N, C], target[N; index(C)]",
        "-torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).mean()",
    ),
    "text": ("x", "y = x * 2 if x.shape[0] > 1 else x\nreturn y * y"),
}
SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str) -> Diagram:
    inputs, forward = OPS[name]
    table = {"inputs": inputs, "forward": forward}
    spec = build(name, table, lambda *_, **__: Location("test"))
    return diagram(spec, derive(spec))


@pytest.mark.parametrize("name", OPS)
def test_an_svg_is_whole_and_loads_nothing(name: str) -> None:
    found = drawn(name)
    text = as_svg(found)
    assert text == as_svg(drawn(name)), "deterministic"
    root = ElementTree.fromstring(text)
    width, height = (float(root.attrib[key]) for key in ("width", "height"))
    rows = [item for item in root.iter(f"{SVG}rect") if "box" in item.attrib["class"]]
    assert len(rows) == len(found.items)
    assert all(float(row.attrib["width"]) < width for row in rows)
    assert all(float(row.attrib["y"]) < height for row in rows)
    said = [item.text for item in root.iter(f"{SVG}text")]
    for item in found.items:
        assert set(code_of(item)) <= set(said)
    assert not re.search(r"href|url\(|@import|<script|<image|foreignObject", text)
    assert re.findall(r"https?://[^\s\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("name", OPS)
def test_mermaid_has_every_item_and_every_edge(name: str) -> None:
    found = drawn(name)
    text = as_mermaid(found)
    assert text.startswith("flowchart TD\n")
    assert len(re.findall(r"(?m)^    n\d+\[\"", text)) == len(found.items)
    edges = [(one, at) for at, item in enumerate(found.items) for one in item.reads]
    assert re.findall(r"(?m)^  n(\d+) --> n(\d+)$", text) == [
        (str(one), str(other)) for one, other in edges
    ]
    labels = re.findall(r'(?m)^    n\d+\["(.*)"\]$', text)
    assert len(labels) == len(found.items)
    assert not any(re.search(r'["<>]', label.replace("<br/>", "")) for label in labels)
