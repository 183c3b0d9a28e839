"""The only writer: plan, settle conflicts, show the difference, write all or nothing.

In: {path: text} and a directory. Out: files; a `Plan` states the change of each.
Invariant: `apply` carries out the plan exactly, and nothing is written before it.

It knows nothing of ops: `project` gives it texts. `changes` compares them with the disk, `conflicts` decides about files not ours,
`merge` keeps the user's edits, `transaction` writes; `records` and `reconcile` remember what was written, to tell edits by hand.

A command calls `recover`, `plan`, `resolve` and `apply`, in this order; a dry run `plan`,
`resolve` and `rehearse`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.workspace.cache import store
    from scaffold.workspace.changes import Change, Plan, Verb, diff, plan
    from scaffold.workspace.conflicts import (
        POLICIES,
        Answer,
        Ask,
        Policy,
        converse,
        resolve,
    )
    from scaffold.workspace.transaction import (
        ChangedError,
        apply,
        in_turn,
        interrupted,
        recover,
        rehearse,
        strays,
    )

__all__ = [
    "POLICIES",
    "Answer",
    "Ask",
    "Change",
    "ChangedError",
    "Plan",
    "Policy",
    "Verb",
    "apply",
    "converse",
    "diff",
    "in_turn",
    "interrupted",
    "plan",
    "recover",
    "rehearse",
    "resolve",
    "store",
    "strays",
]


if not TYPE_CHECKING:

    def __getattr__(name):
        """Return a public name, imported on first use: `scaffold --help` needs none of them and shall start fast."""
        if name in __all__:
            from scaffold.workspace import cache, changes, conflicts, transaction

            for module in (cache, changes, conflicts, transaction):
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
