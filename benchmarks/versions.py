"""Run what the tool writes in a fresh environment: the examples' tests, and a dozen ops that are proven there.

In: an interpreter, a version of PyTorch, whether all else is the newest that pip finds. Out: a row of a Markdown
table on stdout, of the versions and the results; exit code 1 if anything failed.

    python -m benchmarks.versions --python python3.13 --torch '2.6.*'
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHOWN = ("torch", "numpy", "pytest", "black", "typer")
# Ops of every kind: an optional input, several outputs, a norm, a product, a loss, a scan of the row, a choice, integers.
OPS = {
    "swish": ("x", "x * torch.sigmoid(x)"),
    "affine": ("input[N, I], weight[O, I], bias[O]?", "input @ weight.t() + bias"),
    "rms": (
        "x[..., D], weight[D], eps: float = 1e-6",
        "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight",
    ),
    "glu": ("value[..., D], gate[..., D]", "value * torch.sigmoid(gate)"),
    "probs": (
        "x[..., D], temperature: float = 2.0",
        "torch.softmax(x / temperature, -1)",
    ),
    "attend": ("q[..., T, D], k[..., S, D]", "torch.softmax(q @ k.mT, -1)"),
    "huber": ("x[N], y[N]", "F.smooth_l1_loss(x, y)"),
    "nll": ("logits[N, C], target[N; index(C)]", "F.cross_entropy(logits, target)"),
    "masked": ("x[N, D], keep[N, D; bool]", "torch.where(keep, x, 0).sum(-1)"),
    "total": ("x[..., D]", "x.cumsum(-1)"),
    "norm": ("x[..., D]", "x / x.norm(dim=-1, keepdim=True)"),
    "conv": ("x[N, C, L], weight[O, C, 3]", "F.conv1d(x, weight, padding=1)"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Make the environment, run both, and print the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch", default="2.13.0", help="such as '2.6.*'")
    parser.add_argument("--newest", action="store_true", help="pin nothing but torch")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        python = environment(place / "venv", asked.python, asked.torch, asked.newest)
        ops = sum(new_op(python, place, name) for name in OPS)
        tested = examples(python)
        cells = [*versions(python), f"{ops} of {len(OPS)}", tested]
    print("|", " | ".join(cells), "|")
    return int(ops < len(OPS) or "failed" in tested or "error" in tested)


def environment(place: Path, python: str, torch: str, newest: bool) -> Path:
    """Install the tool, PyTorch and pytest; return the interpreter."""
    subprocess.run([python, "-m", "venv", place], check=True)
    found = place / "bin" / "python"
    pins = () if newest else ("-c", _without_torch(place))
    wanted = (ROOT, f"torch=={torch}", "pytest", "pytest-xdist", "numpy")
    subprocess.run([found, "-m", "pip", "install", "-q", *pins, *wanted], check=True)
    return found


def _without_torch(place: Path) -> Path:
    """Write the constraints of CI without those that PyTorch decides."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    free = ("torch==", "numpy==")
    path = place / "constraints.txt"
    kept = [line for line in lines if not line.startswith(free)]
    path.write_text("\n".join(kept), encoding="utf-8")
    return path


def new_op(python: Path, place: Path, name: str) -> bool:
    """Write an op, proven with that PyTorch."""
    inputs, forward = OPS[name]
    words = ("-m", "scaffold", "new-op", name, "--inputs", inputs, "--forward", forward)
    done = subprocess.run(
        [python, *words, "--verify"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or "proven:" not in done.stdout + done.stderr:
        print(f"{name}: {done.stdout}{done.stderr}", file=sys.stderr)
        return False
    return True


def examples(python: Path) -> str:
    """Run the tests of all examples; return pytest's last line, without the time."""
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "."],
        cwd=ROOT / "generated_examples",
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().rsplit("\n", 1)[-1]
    if done.returncode:
        print(done.stdout[-5000:], file=sys.stderr)
    return last.partition(" in ")[0].strip("= ")


def versions(python: Path) -> list[str]:
    """Return the versions that matter, as that environment has them."""
    asked = (
        "import sys; from importlib.metadata import version; "
        f"print(sys.version.split()[0], *map(version, {SHOWN}))"
    )
    done = subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


if __name__ == "__main__":
    sys.exit(main())
