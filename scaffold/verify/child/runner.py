"""The proving process: prove ops, one after the other.

`prover.Prover` starts it and sends requests. In: on stdin, one JSON object a line: an op's text, that of its checks, and the paths of the
user's modules.
Out: on stdout, one JSON object a line: first the version of torch, or why it cannot be imported; then for each op the fields of a
`Verdict`, or how its process ended, or that it reached its limit. Output of the user's code goes to stderr.
Words: a proof is *late* at its limit; its process *died* if it ended without a verdict; what it *said* is the line with the verdict.
Invariant: every op runs in its own process, forked from this one, which has loaded torch and nothing of the user's: no op sees another's
changes to itself, to modules or to torch.
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Any


def main() -> None:
    """Prove the op of each request on stdin in a fork, and write its verdict; end with stdin."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the user's code prints goes to stderr
    _write_line(answers, _loaded())
    sys.dont_write_bytecode = True  # later imports are the user's
    for line in sys.stdin:
        request = json.loads(line)
        if request["function"]:
            _load_questions()
        _write_line(answers, _in_its_process(request))


def _write_line(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def _loaded() -> dict[str, str]:
    """Import once the modules needed by every op; return the first answer: the version of torch, or why it cannot be imported."""
    try:
        import torch

        import scaffold.verify.child.checking  # noqa: F401
    except Exception as error:  # noqa: BLE001 (whatever the installation does)
        return {"lacks": f"{type(error).__name__}: {error}"}
    torch.set_num_threads(1)
    return {"torch": str(torch.__version__)}


def _load_questions() -> None:
    """Import once, before the fork, the modules to judge a Function with, and those that its checks make PyTorch import.

    These take longer than all checks of a Function: for a gradient of given grad_outputs, `torch.testing` and `checkpoint`.
    """
    import scaffold.verify.child.judging  # noqa: F401

    for name in ("pytest", "torch._dynamo", "torch.distributed.tensor"):
        with suppress(ImportError):  # each question reports it then
            import_module(name)


def _in_its_process(request: dict[str, Any]) -> dict[str, Any]:
    """Prove in a forked process; return its verdict, {"late": True} after its limit, or {"died": code}; a signal is a negative code."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _prove(request, writing)  # does not return
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        late = not _speaks(pipe.fileno(), child, request["limit"])
        said = "" if late else pipe.readline()
    # A line without its end was cut: the process died while it wrote it.
    if late or said.endswith("\n"):
        # Out of time, or done: nothing that it may still do is waited for.
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if late:
        return {"late": True}
    if said.endswith("\n"):
        answer: dict[str, Any] = json.loads(said)
        return answer
    return {"died": os.waitstatus_to_exitcode(status)}


def _speaks(pipe: int, child: int, limit: float) -> bool:
    """Wait until the process answers or ends; return False if its time is over.

    Its time is its CPU time, as the machine may be busy; but the clock's if it waits (for a lock, a file), or after LONGEST times the limit.
    """
    begun = time.monotonic()
    while not select.select([pipe], [], [], min(limit, ASKED))[0]:
        past = time.monotonic() - begun
        spent = _spent(child)
        waits = spent < IDLE * past  # but not for a processor
        # Before the limit by the clock it cannot be out of time.
        if past >= limit and (waits or spent >= limit or past >= LONGEST * limit):
            return False
    return True


ASKED = 0.1  # seconds between two looks
IDLE = 0.1  # the fraction of time in which a process works that does not wait
LONGEST = 4  # times the limit by the clock, however busy the machine is


def _spent(child: int) -> float:
    """Return the CPU seconds of a process, in user and system mode; infinity if unknown (no Linux): then the clock decides."""
    try:
        with open(f"/proc/{child}/stat", encoding="utf-8") as stat:
            # After the name in brackets, fields 11 and 12 are utime and stime.
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def _prove(request: dict[str, Any], writing: int) -> None:
    """Write the verdict to the pipe, and end this process at once, whatever the op does; no exit handler of the op runs."""
    code = 1
    try:
        with open(os.devnull, encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), 0)  # the requests are not for the op
        verdict = _verdict(request)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            _write_line(pipe, verdict)
        code = 0
    except SystemExit as stop:
        # The user's code may call `sys.exit`, also with words or nothing.
        code = stop.code if isinstance(stop.code, int) else code
    except BaseException:  # noqa: BLE001 (the user's code may raise anything)
        traceback.print_exc()
    finally:
        os._exit(code)


def _verdict(request: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a verdict on an op, on an op against its original, or on a hand-written Function."""
    from scaffold.verify.child.checking import WATCHED, check
    from scaffold.verify.child.kernels import check_kernels, withhold
    from scaffold.verify.child.modules import load_checks

    sys.path.extend(request["path"])
    if request["function"]:
        from scaffold.verify.child.judging import judged

        return judged(request)
    if request["original"]:
        from scaffold.verify.child.original import against_original

        return against_original(request)
    withhold(request)
    try:
        checks = load_checks(request, WATCHED)
    except Exception as error:  # noqa: BLE001 (whatever the user's modules raise)
        return _not_loaded(error)
    found = check(checks)
    if request["kernels"] and found["failure"] is None:
        more = check_kernels(request, checks)
        more["notes"] = [*found["notes"], *more.get("notes", ())]
        found |= more
    return found


def _not_loaded(error: Exception) -> dict[str, Any]:
    """Return the verdict on an op that cannot be imported, with advice if a module is not installed, or if samples are wrong."""
    from scaffold.verify.child.cases import SamplesError
    from scaffold.verify.child.file_import import install

    words = f"cannot be imported: {type(error).__name__}: {error}"
    failure = {"subject": "the op", "words": words}
    if isinstance(error, SamplesError):
        failure = {"subject": "samples", "words": error.words, "hint": error.hint}
    if hint := install(error):
        failure["hint"] = hint
    return {"cases": 0, "failure": failure, "notes": [], "skipped": []}
