"""Where a simplification says which primitives it is for.

In: functions of a maker and the arguments of one application. Out: for each primitive the functions that may know a simpler
op, in the order in which they are asked: that of the file. Invariant: a function gives an op of the same value and shape, or
None where it has nothing to say.

    @REWRITES.on("conj")
    def conj_of_a_real_value(make: Maker, a: Op) -> Op | None: ...

    @HOISTED.on_each("mul", "div")
    def out_of_a_mask(make: Maker, name: str, args: tuple[Op, ...]) -> Op | None: ...
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scaffold.derive.graph.op import Op

Simplification = Callable[..., Op | None]  # of a maker and the arguments
Simplifications = Mapping[str, tuple[Simplification, ...]]
Function = Callable[..., Any]


class Registry:
    """The simplifications of one module."""

    def __init__(self) -> None:
        self.of: dict[str, list[Simplification]] = {}

    def on(self, *names: str) -> Callable[[Function], Function]:
        """A decorator: the function takes the maker and the arguments of a primitive of that name."""

        def register(function: Function) -> Function:
            for name in names:
                self.of.setdefault(name, []).append(function)
            return function

        return register

    def on_each(self, *names: str) -> Callable[[Function], Function]:
        """A decorator: the function takes the maker, the name of the primitive, and a tuple of its arguments."""

        def register(function: Function) -> Function:
            for name in names:
                self.of.setdefault(name, []).append(_of_name(function, name))
            return function

        return register


def _of_name(function: Function, name: str) -> Simplification:
    return lambda make, *args: function(make, name, args)


def in_order(registries: Iterable[Registry]) -> Simplifications:
    """The simplifications of several modules, those of the first one first."""
    found: dict[str, list[Simplification]] = {}
    for registry in registries:
        for name, functions in registry.of.items():
            found.setdefault(name, []).extend(functions)
    return {name: tuple(functions) for name, functions in found.items()}
