"""The process of a verification: whatever happens in it is a verdict, and nothing gets out of it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scaffold.verify import has_torch, verify
from tests.cli.running import environment
from tests.verify.ops import LINEAR, LINEAR_GRAD, texts

ENDS = {
    "killed by SIGSEGV": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "killed by SIGKILL": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "ended with exit code 3 and no verdict": "import os\nos._exit(3)\n",
    "ended with exit code 0 and no verdict": "import os\nos._exit(0)\n",
    "still running after 8 seconds": "import time\ntime.sleep(60)\n",
}


@pytest.mark.parametrize("words", ENDS)
def test_a_process_that_dies_is_a_failure(words: str) -> None:
    op = f"import sys\nprint('last words', file=sys.stderr, flush=True)\n{ENDS[words]}"
    found = verify(op, "", limit=8).failure
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


def test_what_the_op_prints_is_not_the_answer() -> None:
    op, checks = texts(**LINEAR, grad=LINEAR_GRAD)
    assert verify(f"print('{{}}')\n{op}", checks).failure is None


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
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


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
