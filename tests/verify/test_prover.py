"""The process of a verification: whatever happens in it is a verdict, and nothing gets out of it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from scaffold.verify import (
    Prover,
    Request,
    Verdict,
    has_torch,
    processes_for,
    verify_many,
)
from scaffold.verify.prover import LIMIT
from scaffold.verify.rule_checks import check_rules
from tests.cli.environments import with_torch_alone
from tests.cli.running import environment
from tests.sweeps import in_every_run
from tests.verify.ops import LINEAR, LINEAR_GRAD, texts

as_a_users = pytest.mark.usefixtures("cold_processes")

LAST = "import sys\nprint('last words', file=sys.stderr, flush=True)\n"
ENDS = {
    "killed by SIGSEGV": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "killed by SIGKILL": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "ended with exit code 3 and no verdict": "import os\nos._exit(3)\n",
    "ended with exit code 0 and no verdict": "import os\nos._exit(0)\n",
}


def verify(
    op: str,
    checks: str,
    path: Sequence[str] = (),
    limit: float = LIMIT,
    python: str = sys.executable,
) -> Verdict:
    """Prove one op."""
    with closing(Prover(python, limit)) as prover:
        return prover.prove(Request(op, checks, tuple(path)))


def ended(process: int) -> bool:
    """Whether a process has ended, or does so in a moment: whoever inherits it has to notice."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_a_process_that_dies_is_a_failure() -> None:
    requests = [Request(f"{LAST}{end}", "") for end in ENDS.values()]
    for words, verdict in zip(ENDS, verify_many(requests), strict=True):
        found = verdict.failure
        assert found is not None
        assert (found.subject, found.words) == ("process", words)
        assert found.lines == ("last words",)


def test_an_op_that_cannot_be_imported_is_a_failure() -> None:
    found = verify("import no_such_kernels\n", "").failure
    assert found is not None
    assert found.subject == "the op"
    assert found.words == (
        "cannot be imported: ModuleNotFoundError: No module named 'no_such_kernels'"
    )


def test_modules_of_the_user_are_found_after_all_others(tmp_path: Path) -> None:
    (tmp_path / "my_kernels.py").write_text("def f(x):\n    return x\n")
    (tmp_path / "torch.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "scaffold").mkdir()
    op = "import my_kernels\nraise ValueError(my_kernels.f(1))\n"
    found = verify(op, "", [str(tmp_path)]).failure
    assert found is not None
    assert found.words == "cannot be imported: ValueError: 1"
    assert not (tmp_path / "__pycache__").exists()


@as_a_users
def test_what_the_op_prints_is_not_the_answer() -> None:
    op, checks = texts(**LINEAR, grad=LINEAR_GRAD)
    assert verify(f"print('{{}}')\n{op}", checks).failure is None


@as_a_users
@pytest.mark.each_commit
def test_an_interrupt_ends_the_process_too(tmp_path: Path, interruptible: None) -> None:
    mark = tmp_path / "pid"
    op = (
        f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not mark.exists() or not mark.read_text():
            time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        verify(op, "", limit=50)
    thread.join()
    assert ended(int(mark.read_text()))


SPINS = """
import os
with open(PLACE, "w") as file:
    file.write(str(os.getpid()))
while True:
    pass
"""
PARENT = """
import sys
from scaffold.verify import Prover, Request
Prover(sys.executable, 40).prove(Request(sys.argv[1], "", ()))
"""


@pytest.mark.parametrize(
    "number",
    in_every_run([signal.SIGTERM, signal.SIGKILL, signal.SIGHUP], [signal.SIGKILL]),
)
def test_a_process_ends_with_its_parent_however_that_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    op = SPINS.replace("PLACE", repr(str(mark)))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, op], env=environment())
    while not mark.exists() or not mark.read_text():
        assert parent.poll() is None
        time.sleep(0.05)
    spinning = int(mark.read_text())
    group = os.getpgid(spinning)
    parent.send_signal(number)
    parent.wait()
    assert ended(spinning)
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


@pytest.mark.each_commit
def test_a_process_ends_though_a_copy_of_its_parent_goes_on(tmp_path: Path) -> None:
    """A pool of processes has copies of all that the parent had open, and may outlive it."""
    mark = tmp_path / "pid"
    op = SPINS.replace("PLACE", repr(str(mark)))
    program = (
        "import os, sys, time\nfrom scaffold.verify import Prover, Request\n"
        "prover = Prover()\nprover.start()\n"
        "if os.fork() == 0:\n    time.sleep(30)\n    os._exit(0)\n"
        "prover.prove(Request(sys.argv[1], ''))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, op], env=environment(), start_new_session=True
    )
    while not mark.exists() or not mark.read_text():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert ended(int(mark.read_text()))
    os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.each_commit
def test_many_are_proven_in_one_process_and_none_knows_of_another(
    tmp_path: Path,
) -> None:
    """What one does to itself, to torch or to modules is its own; the others go on."""
    op, checks = texts(**LINEAR, grad=LINEAR_GRAD)
    wrong, its_checks = texts(**LINEAR, grad={**LINEAR_GRAD, "bias": "grad_output"})
    changed = (
        "import torch, sys\ntorch.set_default_dtype(torch.half)\n"
        "torch.set_grad_enabled(False)\nsys.modules['math'] = None\n"
        "raise ValueError\n"
    )
    requests = [
        Request(op, checks),
        Request(changed, ""),
        Request("import os\nos._exit(3)\n", ""),
        Request("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n", ""),
        Request(op, checks),
        Request(f"{LAST}import time\ntime.sleep(60)\n", ""),
        Request(wrong, its_checks),
    ]
    found = list(verify_many(requests, limit=5))
    words = [item.failure.words if item.failure else "" for item in found]
    assert words[0] == words[4] == ""
    assert found[0].cases == found[4].cases > 0
    assert words[1].startswith("cannot be imported")
    assert words[2] == "ended with exit code 3 and no verdict"
    assert words[3] == "killed by SIGKILL"
    assert words[5] == "still running after 5 seconds"
    assert found[5].failure and found[5].failure.hint == "give it longer: --limit 10"
    assert found[5].failure.lines == ("last words",)
    assert found[6].failure and found[6].failure.subject == "grad_bias"
    assert {item.torch for item in found} == {version("torch")}


def test_an_op_with_kernels_has_more_time() -> None:
    for kernels, seconds in (((), 1), ((("op_triton", ""),), 4)):
        request = Request("import time\ntime.sleep(60)\n", "", kernels=kernels)
        (found,) = verify_many([request], limit=1)
        assert found.failure
        assert found.failure.words == f"still running after {seconds} seconds"
        assert found.failure.hint == "give it longer: --limit 2"


def test_requests_are_spread_and_answered_in_their_order() -> None:
    def requests() -> Iterator[Request]:
        for number in range(5):
            yield Request(f"import os\nos._exit({number + 1})\n", "")

    answers = verify_many(requests(), processes=2)
    words = [item.failure.words if item.failure else "" for item in answers]
    assert words == [
        f"ended with exit code {code} and no verdict" for code in range(1, 6)
    ]


def test_a_request_is_made_when_it_can_be_answered() -> None:
    asked: list[int] = []

    def requests() -> Iterator[Request]:
        for number in range(5):
            asked.append(number)
            yield Request("import os\nos._exit(1)\n", "")

    next(verify_many(requests()))
    assert len(asked) <= 2


def test_as_many_processes_as_they_are_worth() -> None:
    assert processes_for(1) == processes_for(4) == 1
    assert processes_for(1000) == len(os.sched_getaffinity(0))


@pytest.mark.each_commit
def test_a_proof_needs_nothing_of_the_tools_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = with_torch_alone(tmp_path)
    absent = ("jinja2", "black", "typer", "click", "tomlkit", "pytest")
    own = (
        "import importlib.util as util, sys\nassert sys.prefix == PREFIX, sys.prefix\n"
    )
    assertion = f"assert not any(map(util.find_spec, {absent}))\n"
    op, checks = texts(**LINEAR, grad=LINEAR_GRAD)
    own = own.replace("PREFIX", repr(str(tmp_path)))
    found = verify(own + assertion + op, checks, python=str(python))
    assert found.failure is None and found.cases
    table = "[square]\ncall = 'torch.square(x)'\ncategory = 'elementwise'\n"
    table += "grad.x = '2 * grad * x'\nsamples = ['x[3, 4]']\ncomplex = false\n"
    checked = check_rules([("rules.toml", table)], python=str(python))
    assert (checked.died, checked.problems) == ("", ())
    assert checked.runs


def test_an_interpreter_without_torch_is_a_failure(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    words = verify("", "", python=str(python)).failure
    assert words is not None and words.words == (
        "cannot import torch: ModuleNotFoundError: No module named 'torch'"
    )
    found = verify("", "", python=str(tmp_path / "none")).failure
    assert found is not None
    assert found.words == "cannot be started: No such file or directory"


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [("", "True"), ("import sys; sys.modules['torch'] = None", "False")],
)
def test_torch_is_looked_for_and_not_imported(blocks: str, expected: str) -> None:
    program = (
        f"{blocks}\nimport sys\nfrom scaffold.verify import has_torch\n"
        "print(has_torch(), bool(sys.modules.get('torch')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [expected, "False"]
    assert has_torch()


LEAN = """
import json, sys
import torch
from scaffold.verify.child import op_tests
from scaffold.verify.child.checking import check
from scaffold.verify.child.modules import load
before = set(sys.modules)
op, checks = json.load(sys.stdin)
load("verified_op", op)
found = check(load("verified_checks", checks))
print(found["cases"], *sorted(set(sys.modules) - before))
"""


def test_a_proof_imports_nothing_beside_torch() -> None:
    """To tell torch.autograd.grad its grad_outputs imports SymPy, which takes longer than all cases together."""
    done = subprocess.run(
        [sys.executable, "-c", LEAN],
        input=json.dumps(texts(**LINEAR, grad=LINEAR_GRAD)),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    cases, *modules = done.stdout.split()
    assert int(cases) > 100
    assert modules == ["verified_checks", "verified_op"]
