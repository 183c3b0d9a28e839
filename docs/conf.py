"""How Sphinx builds the site: `sphinx-build -W -n docs OUT`, with `pip install '.[docs]'`; nothing is fetched from elsewhere."""

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.shell import BashLexer, ShellSessionBaseLexer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from docs import generated
from scaffold.version import __version__

project = "scaffold"
author = "the scaffold contributors"
release = __version__
extensions = ["myst_parser", "sphinx_copybutton"]

smartquotes = False  # `--` and quotes are typed as they stand
html_theme = "furo"
html_title = "scaffold"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"  # without one a browser asks for /favicon.ico
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

# Pages link to files of the repository that are no pages, for readers on a forge; the site names them.
OUTSIDE = re.compile(r"\[(?P<label>[^\]]+)\]\(\.\./(?P<path>[^)#]+)\)")


class Terminal(ShellSessionBaseLexer):
    """A console whose commands begin with `$ ` alone: outputs have lines that begin with `#`."""

    name = "Terminal"
    _innerLexerCls = BashLexer
    _ps1rgx = re.compile(r"^(\$ )(.*\n?)")
    _ps2 = "> "


def _read(app: Any, name: str, source: list[str]) -> None:
    """Put generated parts in place, and name what lies outside of the site."""
    text = generated.filled(source[0])
    source[0] = OUTSIDE.sub(r"\g<label> (`\g<path>` in the repository)", text)


def _always(app: Any, env: Any, *_: object) -> list[str]:
    """Pages with generated parts are read again in every build: they follow the code."""
    pages = ((name, Path(env.doc2path(name))) for name in env.found_docs)
    return [
        name for name, path in pages if generated.MARK.search(path.read_text("utf-8"))
    ]


def _written(app: Any, error: Exception | None) -> None:
    """Put llms.txt beside the pages."""
    if error is None:
        Path(app.outdir, "llms.txt").write_text(generated.llms(), encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", _written)
    app.add_lexer("console", Terminal)
    app.connect("source-read", _read)
    app.connect("env-get-outdated", _always)
