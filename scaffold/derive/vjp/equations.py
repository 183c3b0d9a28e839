"""Equations of `torch.einsum`.

In: their text. Out: letters. Invariant: `...` stays as it is.
"""


def letters_of(equation: str) -> tuple[list[str], str]:
    """The letters of each operand and of the result, which may be left to the order of the alphabet."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if not arrow:
        plain = left.replace(".", "").replace(",", "")
        once = sorted(item for item in set(plain) if plain.count(item) == 1)
        result = "..." * ("..." in left) + "".join(once)
    return inputs, result
