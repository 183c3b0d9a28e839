"""What linting a large tree costs, against parsing it.

In: `python benchmarks/linting.py [--files N]`, in an environment with scaffold's requirements.
Out: the wall time of `scaffold lint` over N files of Python, and of `ast.parse` of each of them in one process, in turn,
and their ratio. Exit 1 where it is above its target.
"""

import argparse
import ast
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TARGET = 2.0
LINT = "from scaffold.cli import main; main()"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        paths = write_tree(Path(directory), options.files)
        times = [(lint(directory), parse(paths)) for _ in range(options.runs)]
    linted, parsed = (median(column) for column in zip(*times, strict=True))
    print(f"lint {linted:.2f} s, ast.parse {parsed:.2f} s of {len(paths)} files")
    print(f"ratio {linted / parsed:.3f}, target {TARGET}")
    return int(linted / parsed > TARGET)


def write_tree(directory: Path, count: int) -> list[Path]:
    """Files of this project and of the standard library; one in eight holds Functions."""
    examples = sorted((ROOT / "generated_examples").glob("*/[!t]*.py"))
    plain = sorted(Path(ast.__file__).parent.glob("*.py"))
    paths = []
    for number in range(count):
        source = (
            examples[number // 8 % len(examples)]
            if number % 8 == 0
            else plain[number % len(plain)]
        )
        path = directory / f"package{number // 50}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(source.read_bytes())
        paths.append(path)
    return paths


def lint(directory: str) -> float:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LINT, "lint", directory, "--format", "json"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode in (0, 1)
    return time.perf_counter() - start


def parse(paths: list[Path]) -> float:
    start = time.perf_counter()
    for path in paths:
        ast.parse(path.read_bytes())
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
