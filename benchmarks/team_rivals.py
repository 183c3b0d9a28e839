"""The same files by cookiecutter and by copier: templates of an op and its tests, names filled in, not formatted.

In: an interpreter that has them, a directory to work in, how many ops. Out: a line each.
Invariant: what they are given is what `scaffold sync` wrote for one op, so that all render the same number of lines.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.startup import LIBRARIES, python, seconds_of

OP = "rms_7"
QUICK = 5  # commands that are run of those that a user would run, one an op

COOKIECUTTER = """
import sys
from cookiecutter.main import cookiecutter
template, out, *names = sys.argv[1:]
for name in names:
    cookiecutter(template, no_input=True, extra_context={"name": name}, output_dir=out)
"""
COPIER = """
import sys
from copier import run_copy
template, out, *names = sys.argv[1:]
for name in names:
    run_copy(template, f"{out}/{name}", data={"name": name}, quiet=True, defaults=True)
"""


def measure_rivals(interpreter: str, keep: Path, count: int) -> Iterator[str]:
    """What they take for that many ops, in one process and with a command for each."""
    libraries = seconds_of(python(LIBRARIES))
    lines = (keep / "explicit/ops" / f"{OP}.py").read_text()
    tests = (keep / "explicit/tests" / f"test_{OP}.py").read_text()
    for name, program, make in (
        ("cookiecutter", COOKIECUTTER, _for_cookiecutter),
        ("copier", COPIER, _for_copier),
    ):
        if not _has(interpreter, name):
            yield f"{name}: not there; say --rivals PYTHON of an environment that has it"
            continue
        template = keep / name
        make(template, lines, tests)
        names = [f"op_{number}" for number in range(count)]
        command = (interpreter, "-c", program, str(template))
        whole = seconds_of((*command, str(keep / f"{name}-out"), *names))
        single = [
            seconds_of((*command, str(keep / f"{name}-{one}"), one))
            for one in names[:QUICK]
        ]
        each = count * min(single)
        yield (
            f"{name}, {count} ops, over the imports: {whole / libraries:.1f} in one "
            f"process, {each / libraries:.0f} with a command for each (of {QUICK} measured)"
        )


def _has(interpreter: str, module: str) -> bool:
    command = (interpreter, "-c", f"import {module}")
    return not subprocess.run(command, capture_output=True, check=False).returncode


def _text(text: str, name: str) -> str:
    """A template that has the lines of a written file."""
    return f"{{% raw %}}{text}{{% endraw %}}".replace(
        OP, f"{{% endraw %}}{name}{{% raw %}}"
    )


def _for_cookiecutter(root: Path, op: str, tests: str) -> None:
    name = "{{cookiecutter.name}}"
    inner = root / name
    inner.mkdir(parents=True)
    (root / "cookiecutter.json").write_text('{"name": "op"}')
    (inner / f"{name}.py").write_text(_text(op, name))
    (inner / f"test_{name}.py").write_text(_text(tests, name))


def _for_copier(root: Path, op: str, tests: str) -> None:
    root.mkdir()
    (root / "copier.yml").write_text("name:\n  type: str\n")
    (root / "{{name}}.py.jinja").write_text(_text(op, "{{ name }}"))
    (root / "test_{{name}}.py.jinja").write_text(_text(tests, "{{ name }}"))
