"""What to do where a file exists and differs: the policy, and the dialogue with the user.

In: a `Plan`, the policy of `--on-conflict`, and someone to ask. Out: a `Plan` without conflicts.
Invariant: no file is overwritten unless the policy or an answer said so.
"""

from collections.abc import Callable
from typing import Literal, get_args

from scaffold.errors import ConflictError
from scaffold.workspace.changes import Change, Plan, Verb
from scaffold.workspace.difference import diff_file

Policy = Literal["ask", "abort", "skip", "overwrite"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

Answer = Literal["no", "yes", "all", "quit"]
Ask = Callable[[Change], Answer]

_REPLIES: dict[str, Answer] = {
    "": "no",
    "n": "no",
    "no": "no",
    "y": "yes",
    "yes": "yes",
    "a": "all",
    "all": "all",
    "q": "quit",
    "quit": "quit",
}


def resolve(plan: Plan, policy: Policy, ask: Ask | None = None) -> Plan:
    """Turn each conflict into an update or a skip; ConflictError if the policy is neither.

    `ask` is asked about one file at a time; without it (no terminal) asking is aborting.
    """
    if policy == "overwrite":
        return _settled(plan, lambda change: "yes")
    if policy == "skip":
        return _settled(plan, lambda change: "no")
    if policy == "ask" and ask is not None:
        return _settled(plan, ask)
    if plan.conflicts:
        raise _refusal(plan)
    return plan


def _settled(plan: Plan, ask: Ask) -> Plan:
    changes: list[Change] = []
    every = False
    for change in plan.changes:
        if change.verb == "conflict":
            answer = "all" if every else ask(change)
            if answer == "quit":
                raise _refusal(plan)
            every = answer == "all"
            verb: Verb = "skip" if answer == "no" else "update"
            change = change._replace(verb=verb)
        changes.append(change)
    return plan._replace(changes=tuple(changes))


def _refusal(plan: Plan) -> ConflictError:
    paths = ", ".join(f"'{change.path}'" for change in plan.conflicts)
    verb = "exists and differs" if len(plan.conflicts) == 1 else "exist and differ"
    return ConflictError(
        f"{paths} {verb}; nothing was written",
        hint="see them with --diff, settle them with --on-conflict skip or overwrite",
    )


def converse(
    change: Change, prompt: Callable[[str], str], show: Callable[[str], None]
) -> Answer:
    """Ask about one file until there is an answer; no answer to be had is `quit`.

    `prompt` shows a question and returns a line, or raises EOFError; `show` shows a text.
    """
    question = f"overwrite {change.path}? [n]o/[y]es/[d]iff/[a]ll/[q]uit (no): "
    while True:
        try:
            reply = prompt(question).strip().lower()
        except EOFError:
            return "quit"
        if reply in _REPLIES:
            return _REPLIES[reply]
        if reply in ("d", "diff"):
            show(diff_file(change))
        else:
            show(f"'{reply}' is no answer: n, y, d, a or q\n")
