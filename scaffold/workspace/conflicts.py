"""Conflicts with existing, different files: the policy, and the dialogue with the user.

`plan` marks as a conflict each existing file that differs and is not known to be ours; nobody's work may be overwritten unasked.
In: a `Plan`, the policy of `--on-conflict`, and a function asking the user. Out: a `Plan` with every conflict decided.
Invariant: no file is overwritten unless the policy or an answer says so; a merge with places left to settle stays a
conflict, with the markers.
"""

from collections.abc import Callable
from typing import Literal, get_args

from scaffold.errors import ConflictError, ScaffoldError, raise_all
from scaffold.workspace.changes import Change, Plan, diff_file, merge_into, unix

Policy = Literal["ask", "abort", "skip", "overwrite", "merge"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

Answer = Literal["no", "yes", "merge", "all", "quit"]
Ask = Callable[[Change], Answer]

# What a user may type at a question: a word or its first letter. "no" is the default.
_REPLIES: dict[str, Answer] = {
    "": "no",
    **{word: answer for answer in get_args(Answer) for word in (answer, answer[0])},
}
# The policies that need no question, each with the answer it gives.
_DECIDING: dict[Policy, Answer] = {"overwrite": "yes", "skip": "no", "merge": "merge"}


def resolve(plan: Plan, policy: Policy, ask: Ask | None = None) -> Plan:
    """Return the plan with each conflict decided by the policy, or by the user's answers.

    `ask` is called for one file at a time; without it (no terminal), "ask" means "abort". Raise ConflictError for "abort", and for a file
    that is to be merged and cannot be.
    """
    if policy in _DECIDING:
        return _settled(plan, lambda change: _DECIDING[policy])
    if policy == "ask" and ask is not None:
        return _settled(plan, ask)
    if plan.conflicts:
        raise _refusal(plan)
    return plan


def _settled(plan: Plan, ask: Ask) -> Plan:
    """Return the plan with each conflict decided by an answer of `ask`; raise ConflictError for "quit", and for files that cannot be merged.

    After the answer "all" the rest is overwritten without asking.
    """
    changes: list[Change] = []
    problems: list[ScaffoldError] = []
    overwrite_all = False
    for change in plan.changes:
        if change.verb == "conflict":
            answer = "all" if overwrite_all else ask(change)
            if answer == "quit":
                raise _refusal(plan)
            overwrite_all = answer == "all"
            try:
                change = _decided(change, answer)
            except ConflictError as problem:
                problems.append(problem)
        changes.append(change)
    raise_all(problems)
    return plan._replace(changes=tuple(changes))


def _decided(change: Change, answer: Answer) -> Change:
    """Return a conflict as decided by an answer: skipped ("no"), merged, or carried out ("yes", "all"); raise if it cannot be merged."""
    if answer == "no":
        return change._replace(verb="skip")
    if answer == "merge":
        return _merged(change)
    return change._replace(verb="remove" if change.after is None else "update")


def _merged(change: Change) -> Change:
    """Return a conflict with the generated text merged into the user's file; raise ConflictError if it cannot be merged.

    It stays a conflict, now with markers in its text, if both sides changed the same lines, and has their number; it is "identical"
    if the file has all that is new already.
    """
    obstacle = _obstacle(change)
    if obstacle:
        reason, hint = obstacle
        raise ConflictError(
            f"'{change.path}' cannot be merged: {reason}; nothing was written",
            hint=hint,
        )
    assert (
        change.before is not None
        and change.after is not None
        and change.base is not None
    )
    after, count = merge_into(change.before, change.base, change.after)
    if after == change.before:
        return change._replace(verb="identical", after=after)
    verb: Literal["update", "conflict"] = "conflict" if count else "update"
    return change._replace(verb=verb, after=after, conflicts=count)


def _obstacle(change: Change) -> tuple[str, str] | None:
    """Return the reason a file in conflict cannot be merged, and a hint; None if it can: then its text as written last is known."""
    from scaffold.workspace.merge import has_markers

    instead = "use --on-conflict skip or overwrite"
    # A conflict has a file on disk (`before`), so it is `after` that is None.
    if change.before is None or change.after is None:
        return "it is to be removed", instead
    try:
        text = unix(change.before).decode()
    except UnicodeDecodeError:
        return "it is not UTF-8", instead
    if has_markers(text):
        return "it holds the markers of an earlier merge", "resolve them first"
    if change.base is None:
        return "there is no record of its generated text", instead
    return None


def _refusal(plan: Plan) -> ConflictError:
    """Return the error for a plan with conflicts nobody may decide: it names the files, and the options to decide them."""
    paths = ", ".join(f"'{change.path}'" for change in plan.conflicts)
    verb = "exists and differs" if len(plan.conflicts) == 1 else "exist and differ"
    # A merge starts from the text as written last: without one that option would help nobody.
    any_base = any(change.base is not None for change in plan.conflicts)
    ways = "skip, overwrite or merge" if any_base else "skip or overwrite"
    return ConflictError(
        f"{paths} {verb}; nothing was written",
        hint=f"see the difference with --diff; then use --on-conflict {ways}",
    )


def converse(
    change: Change, prompt: Callable[[str], str], show: Callable[[str], None]
) -> Answer:
    """Ask about one file until there is a valid answer, and return it; the end of the input means `quit`.

    `prompt` shows a question and returns a line, or raises EOFError; `show` shows a text, here a diff or a reason.
    """
    act = "remove" if change.after is None else "overwrite"
    question = f"{act} {change.path}? [n]o/[y]es/[d]iff/[m]erge/[a]ll/[q]uit (no): "
    while True:
        try:
            reply = prompt(question).strip().lower()
        except EOFError:
            return "quit"
        answer = _REPLIES.get(reply)
        obstacle = _obstacle(change) if answer == "merge" else None
        # The question is asked again: this file cannot be merged.
        if obstacle:
            show(f"{change.path} cannot be merged: {obstacle[0]}\n")
        elif answer:
            return answer
        elif reply in ("d", "diff"):
            show(diff_file(change))
        else:
            show(f"'{reply}' is not an answer: n, y, d, m, a or q\n")
