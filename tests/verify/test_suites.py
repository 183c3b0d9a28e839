"""Test files are run in processes of their own; whatever they do, a report says so."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.suites import Failed, Report, Suite, Telling, run_suites
from tests.cli.running import environment
from tests.verify.test_prover import ended

pytestmark = pytest.mark.usefixtures("cold_processes")

BODIES = {
    "passes": "def test_a(): pass\ndef test_b(): pass",
    "fails": "def test_a(): pass\ndef test_b():\n    raise ValueError('no')",
    "dies": """
        import os, signal
        def test_a(): pass
        def test_b():
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
    "exits": "import os\nos._exit(7)",
    "hangs": "import time\ndef test_a(): pass\ndef test_b(): time.sleep(60)",
    "broken": "import a_module_that_is_not_there",
    "empty": "",
    "skipped": "import pytest\ndef test_a(): pytest.skip('later')",
    "unwritten": """
        import pytest
        @pytest.fixture
        def written(): pytest.xfail('foo: write grad_x')
        def test_a(): pass
        def test_b(written): pass
        """,
    "expected": "import pytest\ndef test_a(): pass\ndef test_b(): pytest.xfail('bad luck')",
    "torn": """
        import pytest
        @pytest.fixture
        def thing():
            yield
            raise ValueError('torn')
        def test_a(thing): pass
        """,
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """All of them in one run, on two processes: starting one takes seconds."""
    directory = tmp_path_factory.mktemp("suites")
    suites = []
    for name, body in BODIES.items():
        file = directory / f"test_{name}.py"
        file.write_text(textwrap.dedent(body).strip() + "\n")
        suites.append(Suite(file, directory))
    counted: list[int] = []
    found = list(run_suites(suites, jobs=2, limit=6, tell=counted.append))
    assert counted == sorted(counted) and counted[-1] == 12
    assert {path.name for path in directory.iterdir()} == {
        suite.file.name for suite in suites
    }, "no cache, no bytecode"
    return dict(zip(BODIES, found, strict=True))


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("passes", "passed", "2 passed"),
        ("fails", "failed", "1 failed, 1 passed"),
        ("dies", "failed", "killed by SIGSEGV, in test_b (1 passed)"),
        ("exits", "failed", "ended with exit code 7 before its tests did"),
        ("hangs", "failed", "still running after 6 seconds, in test_b (1 passed)"),
        ("empty", "no tests", "no tests"),
        ("skipped", "no tests", "no test passed (1 skipped)"),
        ("unwritten", "not implemented", "not implemented: write grad_x"),
        ("expected", "passed", "1 passed, 1 xfailed"),
        ("torn", "failed", "1 failed"),
    ],
)
def test_the_report_says_what_became_of_it(
    reports: dict[str, Report], name: str, status: str, words: str
) -> None:
    assert (reports[name].status, reports[name].words) == (status, words)


def test_what_cannot_be_imported_says_why(reports: dict[str, Report]) -> None:
    assert reports["broken"].status == "failed"
    assert "No module named 'a_module_that_is_not_there'" in reports["broken"].words


def test_a_failure_has_its_reason(reports: dict[str, Report]) -> None:
    assert [tuple(item) for item in reports["fails"].failures] == [
        ("test_b", "ValueError: no")
    ]


def test_what_pytest_says_of_itself_is_kept(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    (report,) = run_suites([Suite(tmp_path / "test_a.py", tmp_path)])
    assert (report.status, report.words) == ("failed", "pytest refused to run")
    assert any("a_module_that_is_not_there" in line for line in report.said)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/nowhere/python", "cannot be started"),
        ("/bin/true", "is not a Python interpreter"),
    ],
)
def test_an_interpreter_that_is_none_is_an_error(
    tmp_path: Path, python: str, words: str
) -> None:
    suites = [Suite(tmp_path / "test_foo.py", tmp_path)]
    with pytest.raises(ScaffoldError, match=words) as caught:
        list(run_suites(suites, python))
    assert str(caught.value.location) == "--python"


def test_an_interpreter_without_torch_says_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ScaffoldError, match="cannot import pytest") as caught:
        list(run_suites([Suite(tmp_path / "test_foo.py", tmp_path)], str(python)))
    assert caught.value.hint and "--python" in caught.value.hint


def test_an_interrupt_ends_what_runs(tmp_path: Path, interruptible: None) -> None:
    file = tmp_path / "test_slow.py"
    file.write_text(
        "import os, time\n"
        "def test_a():\n"
        "    open('pid', 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
    )

    def interrupt() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.05)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        list(run_suites([Suite(file, tmp_path)]))
    assert not alive(int((tmp_path / "pid").read_text()))


def alive(process: int) -> bool:
    """Whether a process still runs; one that nobody has waited for does not."""
    for _ in range(50):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.1)
    return True


PARENT = """
import sys
from pathlib import Path
from scaffold.verify.suites import Suite, run_suites
file = Path(sys.argv[1])
print(list(run_suites([Suite(file, file.parent)])))
"""


@pytest.mark.each_commit
def test_tests_that_spin_end_with_the_run(tmp_path: Path) -> None:
    """However it ends: here it is killed."""
    mark, file = tmp_path / "pid", tmp_path / "test_spins.py"
    file.write_text(
        f"import os\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "def test_a():\n    while True: pass\n"
    )
    command = [sys.executable, "-c", PARENT, str(file)]
    parent = subprocess.Popen(command, env=environment())
    while not mark.exists() or not mark.read_text():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(signal.SIGTERM)
    parent.wait()
    assert ended(int(mark.read_text()))


def told(*answers: dict[str, Any], said: str = "") -> Report:
    telling = Telling()
    for answer in answers:
        telling.hear(answer)
    assert telling.ended
    return telling.report(said)


def outcome_of(test: str, outcome: str, words: str = "") -> dict[str, Any]:
    return {"test": test, "outcome": outcome, "words": words}


END: tuple[dict[str, Any], ...] = ({"finished": 0}, {"ended": 0})


def test_a_run_to_the_end_with_a_test_that_passed() -> None:
    report = told(outcome_of("a", "passed"), outcome_of("b", "skipped"), *END)
    assert (report.status, report.words) == ("passed", "1 passed, 1 skipped")


def test_a_failure_stays_one_when_the_test_is_torn_down() -> None:
    report = told(
        outcome_of("a", "failed", "no"), outcome_of("a", "failed", "torn"), *END
    )
    assert (report.status, report.words) == ("failed", "1 failed")
    assert report.failures == (Failed("a", "no"),)


def test_parts_that_are_left_to_write() -> None:
    answers = [outcome_of(test, "xfailed", "foo: write grad_x") for test in "ab"]
    report = told(*answers, outcome_of("c", "passed"), *END)
    assert report.status == "not implemented"
    assert report.words == "not implemented: write grad_x"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([*END], "no tests"),
        ([outcome_of("a", "skipped"), *END], "no test passed (1 skipped)"),
        (
            [{"broken": "No module named 'a'"}, {"finished": 2}, {"ended": 2}],
            "cannot be imported: No module named 'a'",
        ),
        ([{"finished": 2}, {"ended": 2}], "was interrupted"),
        (
            [outcome_of("a", "passed"), {"began": "b"}, {"ended": -11}],
            "killed by SIGSEGV, in b (1 passed)",
        ),
        ([{"ended": 7}], "ended with exit code 7 before its tests did"),
    ],
)
def test_a_run_that_did_not_come_to_its_end(
    answers: list[dict[str, Any]], words: str
) -> None:
    report = told(*answers)
    assert report.words == words
    assert report.status == ("no tests" if words.startswith("no test") else "failed")


def test_the_last_lines_of_what_was_said_and_no_dots() -> None:
    report = told({"ended": 1}, said="...F\n" + "".join(f"{n}\n" for n in range(9)))
    assert report.said == ("3", "4", "5", "6", "7", "8")


def test_a_run_that_takes_too_long() -> None:
    telling = Telling()
    telling.hear({"began": "slow"})
    telling.late(600)
    assert telling.report("").words == "still running after 600 seconds, in slow"
