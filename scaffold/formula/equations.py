"""Equations of `torch.einsum` that fit no operands.

The parser of expressions reports them with a hint, since PyTorch's own message comes only when the op runs.

Words: an *equation* is the string `"ij,jk->ik"`, its *operands* the tensors after it, one for each part before the arrow.

In: a call. Out: the error in its equation and a hint; None if PyTorch may accept it.
"""

import ast
import re
from collections.abc import Collection, Sequence

from scaffold.primitives.calls import facts_of_call
from scaffold.primitives.facts import EQUATION

Wrong = tuple[str, str]  # the message of an error, and a hint
EQUATION_TEXT = re.compile(r"[A-Za-z., ]*(?:->[A-Za-z. ]*)?")  # PyTorch rejects others


def wrong_equation(call: ast.Call, single: Collection[str]) -> Wrong | None:
    """Return a message and a hint for an equation unfit for its operands, else None.

    Each name in `single` is one tensor, no list of tensors, so it is one operand.
    """
    match call:
        case ast.Call(
            ast.Attribute(ast.Name("torch"), word),
            [ast.Constant(str(equation)), *operands],
            [],
        ) if any(facts.shape == EQUATION for facts in facts_of_call(word)):
            # `torch.einsum`, or another function that the table says has an equation.
            given = _operands(operands, single)
            if EQUATION_TEXT.fullmatch(equation):
                return _count(equation, given) or _letters(equation)
    return None


def _operands(
    values: Sequence[ast.expr], single: Collection[str]
) -> Sequence[ast.expr]:
    """Return the operands of an equation; none if they cannot be counted.

    A single name may be a list of all operands, unless it is in `single`; a starred one is several.
    """
    match values:
        case [ast.List(items) | ast.Tuple(items)]:
            values = items
        case [ast.Name(name)] if name in single:
            pass  # one operand
        case [_]:
            return ()
    starred = any(isinstance(item, ast.Starred) for item in values)
    return () if starred else values


def _count(equation: str, operands: Sequence[ast.expr]) -> Wrong | None:
    """Return the error for an equation of `einsum` with another number of operands; None if it fits.

    None too if `operands` is empty: they are given by a star or one variable, and cannot be counted.
    """
    wanted = equation.partition("->")[0].count(",") + 1
    if not operands or wanted == len(operands):
        return None
    plural = "" if wanted == 1 else "s"
    message = f"'{equation}' has {wanted} operand{plural}, and is given {len(operands)}"
    return message, "separate the operands by commas: 'ij,jk->ik'"


def _letters(equation: str) -> Wrong | None:
    """Return the error for a letter of the result missing in all operands, `k` of `ij->ik`; None if there is none."""
    left, _, result = equation.partition("->")
    for letter in result.replace(".", "").replace(" ", ""):
        if letter not in left:
            message = (
                f"'{letter}' is after the arrow of '{equation}', but in no operand"
            )
            return message, "each letter after -> must also be before it"
    return None
