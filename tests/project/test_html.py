"""Code as a notebook shows it."""

import re
from html import unescape

from scaffold.project.html import as_html

CODE = '''class F(Function):
    """A <b>."""

    # why
    def forward(x):
        y = x * 2.5  # here
        return y if x < 1 else """two
lines"""
'''


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_the_code_is_all_there_and_escaped() -> None:
    html = as_html("f(x)", CODE, ["a < b"])
    assert text_of(html) == f"f(x)a < b{CODE}"
    assert "<b>" not in html
    assert "http" not in html


def test_tokens_have_the_colours_of_the_notebook() -> None:
    html = as_html("f(x)", CODE, ())
    coloured = re.findall(r'<span style="color: var\(--jp-mirror-editor-(\w+)-', html)
    assert coloured.count("keyword") == 5
    assert coloured.count("comment") == 2
    assert coloured.count("string") == 2
    assert coloured.count("number") == 2
    assert "<ul>" not in html
