"""The only writer: plan, settle conflicts, show the difference, write all or nothing.

In: {path: text} and a directory. Out: files; a `Plan` states the change of each.
Invariant: `apply` carries out the plan exactly, and nothing is written before it.

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
        """Import a public name with its first use, as help needs none of them."""
        if name in __all__:
            from scaffold.workspace import cache, changes, conflicts, transaction

            for module in (cache, changes, conflicts, transaction):
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
