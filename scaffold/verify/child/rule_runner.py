"""The rule-checking process: compare tables of rules with PyTorch's autograd.

`scaffold rules check` starts it (`verify/rule_checks.py`). In: on stdin, one JSON object on a line: the tables, each with its path and
text. Out: on stdout, likewise: the number of runs, the failures, and the number of runs compared with differences, and of which rules, as
autograd has no gradient of the call.
Invariant: only the rules of the last table are checked; a failure does not stop the check of the others.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

Problem = dict[str, str]


def main() -> None:
    """Answer one request on stdin, the tables to check, on the stdout this process began with."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the user's code prints goes to stderr
    request = json.loads(sys.stdin.readline())
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True  # later imports may be the user's
    sys.path.append(os.getcwd())  # the user's modules are found after all others
    answer.write(json.dumps(checked(request["tables"])) + "\n")
    answer.close()


def checked(tables: list[tuple[str, str]]) -> dict[str, Any]:
    """Return, for JSON, the number of runs (a formula on a sample), the problems of the last table's rules, and the use of differences."""
    from scaffold.derive.rules.team_tables import table_with
    from scaffold.spec import RuleFile

    table = table_with(tuple(RuleFile(path, text) for path, text in tables))
    problems: list[Problem] = []
    count = 0
    opaque: list[str] = []  # the rule of each run without a gradient by autograd
    for name in table.heads:  # the rules of the last table
        for found, by_differences in _of_rule(table, table.rule(name)):
            count += 1
            problems += found
            if by_differences:
                opaque.append(name)
    names = list(dict.fromkeys(opaque))
    return {
        "runs": count,
        "problems": problems,
        "by_differences": len(opaque),
        "opaque": names,
    }


def _of_rule(table: Any, rule: Any) -> Iterator[tuple[list[Problem], bool]]:
    """Yield, for each formula of a rule on each sample, its problems (one or none), and whether differences stood in for autograd.

    A rule that cannot be run at all has one problem, about its call. A rule without formulas need only be callable.
    """
    from scaffold.verify.child.rule_runs import Unsuited, comparisons
    from scaffold.verify.child.rule_values import IMPORTED

    try:
        if rule.module is not None:
            # A function of the user's: its rule's formulas find it in IMPORTED.
            module = importlib.import_module(rule.module)
            IMPORTED[rule.spelled.name] = getattr(module, rule.spelled.name)
        for sample, formula, got, wanted, opaque in comparisons(table, rule):
            words = _difference(
                got, wanted, "finite differences" if opaque else "autograd's"
            )
            about = {"rule": rule.name, "formula": formula, "sample": sample}
            yield [about | {"words": words}] if words else [], opaque
    except Unsuited as error:
        yield [_of_call(rule, str(error))], False
    except Exception as error:  # noqa: BLE001 (whatever torch raises of a rule)
        said = (str(error).splitlines() or [""])[0]
        words = f"{type(error).__name__}: {said}"
        if "Complex" in said:
            words += "; if it is only for real arguments, write: complex = false"
        yield [_of_call(rule, words)], False


def _of_call(rule: Any, words: str) -> Problem:
    return {"rule": rule.name, "formula": "", "sample": "", "words": words}


def _difference(got: Any, wanted: Any, whose: str) -> str:
    """Describe how a value differs from the right one; "" if it does not. `whose` is its origin, as "autograd's"."""
    import torch

    if got.shape != wanted.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(wanted.shape)}"
    if got.dtype != wanted.dtype:
        return f"{got.dtype} instead of {wanted.dtype}"
    if torch.allclose(got, wanted, equal_nan=True):
        return ""
    return _diagnosed(got.detach(), wanted.detach(), whose)


def _diagnosed(got: Any, wanted: Any, whose: str) -> str:
    """Describe the difference between two values of one shape: `wrong sign`, `factor 2`, or the largest one."""
    import torch

    if torch.allclose(got, -wanted):
        return "wrong sign"
    # Divided by zeros alone, all are infinite, and would agree on a factor.
    if got.isfinite().all() and wanted.isfinite().all() and wanted.abs().max() > 0:
        factor = (got / wanted).flatten()
        if torch.allclose(factor, factor[:1].expand_as(factor)):
            return f"factor {factor[0].item():.4g}"
    largest = (got - wanted).abs().max().item()
    return f"differs from {whose} by up to {largest:.3g}"
