"""Random forwards with a loop over the steps of a sequence.

In: a seed. Out: a `DrawnLoop`: the signature, the forward and the outputs of an op, and its inputs. Invariant: the forward is valid for the inputs, and its
results are finite. Its names are those that the backward of a loop has too: `x_t`, `ys`, `h`, `h0`.
"""

import random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.derive.building import reference
from tests.derive.random_forwards import SIZES, Drawer

HEADERS = (
    *("for t in range({n}):", "for t in range(1, {n}):", "for t in range({n} - 1):"),
    *("for t in reversed(range({n})):", "for t in range({n} - 1, -1, -1):"),
    *("for t, x_t in enumerate(x.unbind({dim})):", "for x_t in x.unbind({dim}):"),
    "for x_t, y_t in zip(x.unbind({dim}), y.unbind({dim})):",
)
LEADS: tuple[tuple[str, ...], ...] = ((), ("B",), ("B", "C"))
INDEXED = ("for t in", "for t,")
BACK = ("reversed", "-1, -1")  # what a header that goes back has


class DrawnLoop(NamedTuple):
    """An op with a loop, and inputs for it."""

    inputs: str
    outputs: str
    forward: str
    values: tuple[Tensor, ...]


def drawn_loop(seed: int) -> DrawnLoop:
    """The op of a seed."""
    for attempt in range(1000):
        found = _LoopDrawer(random.Random(f"{seed} {attempt}"), seed).loop()
        if found is not None:
            return found
    raise AssertionError("no valid program")


class _LoopDrawer(Drawer):
    """Draws the step over the values of the first one; the whole then runs or is thrown away."""

    def loop(self) -> DrawnLoop | None:
        chance = self.chance
        self.dim = chance.choice((0, 1, 1))
        self.lead = LEADS[chance.randint(self.dim, 2)]
        inputs = self._inputs()
        names = list(self.values)
        carries = ["h", "g"][: chance.choice((1, 1, 2))]
        lists = {
            name: chance.choice(("", "", "h", "h, h * w"))
            for name in ("ys", "zs")[: chance.choice((0, 1, 1, 2))]
        }
        lines = self._begun(carries, lists)
        header = chance.choice(HEADERS).format(n=f"x.shape[{self.dim}]", dim=self.dim)
        step = self._step(header, carries, lists) if lines else None
        if step is None:
            return None
        lines += [header, *(f"    {line}" for line in step)]
        results = self._joined(header, lists, lines)
        results += chance.sample(carries, len(carries))
        results += chance.choice(([], ["x"], ["w"]))
        lines.append(
            f"return {', '.join(f'torch.sin({name}) * 1.5' for name in results)}"
        )
        values = tuple(self.inputs[name] for name in names)
        outputs = ", ".join(f"o{at}" for at, _ in enumerate(results))
        found = DrawnLoop(", ".join(inputs), outputs, "\n".join(lines), values)
        return found if _is_valid(found, names) else None

    def _inputs(self) -> list[str]:
        chance, steps = self.chance, self.chance.choice((1, 2, 3))
        lead, dims = self.lead, [*self.lead]
        dims.insert(self.dim, "T")
        shapes = {"x": dims, "y": dims, "w": chance.choice(((), lead[-1:], lead))}
        if chance.random() < 0.5:
            shapes["h0"] = chance.choice((lead, lead[-1:], ()))
        for name, shape in shapes.items():
            sizes = [steps if dim == "T" else SIZES[dim] for dim in shape]
            self.values[name] = torch.randn(
                sizes, dtype=torch.double, generator=self.generator
            )
        self.inputs = dict(self.values)
        bare = chance.random() < 0.3
        return [
            name if bare else f"{name}[{', '.join(shape)}]"
            for name, shape in shapes.items()
        ]

    def _begun(self, carries: list[str], lists: dict[str, str]) -> list[str]:
        """The lines before the loop; none where a carry cannot begin so."""
        first = f"x[{':, ' * self.dim}0]"
        starts = [f"torch.zeros_like({first})", first, f"{first} * w", "w * w"]
        starts += ["h0"] * 2 if "h0" in self.values else []
        lines = []
        for name in carries:
            start = self.chance.choice(starts)
            value = self._run(start)
            if value is None:
                return []
            self.values[name] = value
            lines.append(f"{name} = {start}")
        return [*lines, *(f"{name} = [{there}]" for name, there in lists.items())]

    def _step(
        self, header: str, carries: list[str], lists: dict[str, str]
    ) -> list[str] | None:
        """The lines of a step; some add to the lists before a carry changes, some behind that."""
        chance = self.chance
        self.lines = []
        for name in ("x", "y"):
            self.values[f"{name}_t"] = self.values[name].select(self.dim, 0)
            if f"{name}_t" not in header and header.startswith(INDEXED):
                self.lines.append(f"{name}_t = {name}[{':, ' * self.dim}t]")
        if not header.startswith(INDEXED) and "y_t" not in header:
            del self.values["y_t"]
        if chance.random() < 0.7:  # reads whole sequences in few
            del self.values["x"], self.values["y"]
        waiting = list(lists)
        for name in [*chance.choices(("a", "b", *carries), k=2), "h"]:
            if waiting and chance.random() < 0.4:
                self.lines.append(f"{waiting.pop()}.append({chance.choice(carries)})")
            if not self._statement(name):
                return None
            if name in carries and chance.random() < 0.5:
                self.lines[-1] = (
                    f"{name} = torch.tanh({name} * w) + ({self.lines[-1].partition(' = ')[2]}).mean()"
                )
        return [*self.lines, *(f"{name}.append(h * w)" for name in waiting)]

    def _joined(
        self, header: str, lists: dict[str, str], lines: list[str]
    ) -> list[str]:
        """What the lists are in the end, by lines of their own."""
        order = "[::-1]" if any(word in header for word in BACK) else ""
        for name in lists:
            dim = self.chance.choice((0, 1, -1))
            lines.append(f"all_{name} = torch.stack({name}{order}, {dim})")
        return [f"all_{name}" for name in lists]


def _is_valid(drawn: DrawnLoop, names: list[str]) -> bool:
    function: Any = reference(names, drawn.forward)
    try:
        found = function(*drawn.values)
    except (RuntimeError, IndexError, TypeError, ValueError, NameError):
        return False
    outputs = found if isinstance(found, tuple) else (found,)
    return all(one.numel() and bool(one.isfinite().all()) for one in outputs)
