"""Patterns of einops -> PyTorch calls: `rearrange(x, "b n (h d) -> b h n d", h=8)`.

Attention is often written with einops; the engine knows the gradients of PyTorch's calls only, so these are written out when
the user's file is read.

In: the syntax of a file. Out: the same, with each einops call with a literal pattern replaced by PyTorch calls:
`x.unflatten(2, (8, -1)).transpose(1, 2)`. Invariant: a call that is not understood in full stays as it is.

Words: a *side* of a pattern, before or after the arrow, is a list of *groups*, one for each dim of the tensor: `b (h d)` has a
group of the one *axis* b, and a *joined* group of h and d, whose sizes multiply to that of the dim. An axis before `...` is
indexed from the front, an axis after it from the end, since the number of dims of `...` is unknown.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from scaffold.formula.definitions import imported

FUNCTIONS = ("rearrange", "repeat", "reduce", "einsum")
# einops' word for a reduction -> PyTorch's method.
REDUCTIONS = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin"}
MORE = "..."
TOKENS = re.compile(r"\.\.\.|\w+|[()]|\S")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Group(NamedTuple):
    """The axes of one dim; no axis for a dim of size 1."""

    axes: list[str]
    joined: bool  # written in parentheses


ELLIPSIS = Group([MORE], False)


def with_patterns_written_out(
    module: ast.Module, kept: Collection[str] = ()
) -> ast.Module:
    """Return a file with einops calls replaced by PyTorch calls, except calls of `kept` names, which the op imports.

    The file stays as it is if it rebinds an imported name of einops: a call of the name may then be one of something else.
    """
    names = {
        item.name: item.dotted
        for item in imported(module)
        if item.dotted.partition(".")[0] == "einops" and item.name not in kept
    }
    if not names or names.keys() & set(_bound(module)):
        return module
    writer = _Writer(names)
    module.body = [writer.visit(item) for item in module.body]
    return module


def _bound(module: ast.Module) -> Iterator[str]:
    """Yield the names a file binds other than by imports."""
    for node in ast.walk(module):
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name) | ast.FunctionDef(name):
                yield name


class _Writer(ast.NodeTransformer):
    """The transformer of a file; `names` maps imported names of einops to their full ones."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace a call of an einops function with a literal pattern; any other call stays."""
        self.generic_visit(node)
        match node.func:
            case ast.Name(name) if name in self.names:
                dotted = self.names[name]
            case ast.Attribute(ast.Name(name), word) if name in self.names:
                dotted = f"{self.names[name]}.{word}"
            case _:
                return node
        function = dotted.removeprefix("einops.")
        if function not in FUNCTIONS:
            return node
        found = _einsum(node) if function == "einsum" else _rearranged(node, function)
        return node if found is None else _at(found, node)


def _at(made: ast.expr, place: ast.expr) -> ast.expr:
    """Give a new expression the place of the one it replaces.

    New nodes are made to end on the next line: readers of a number's own digits take them from the source if a node ends on
    its first line, and here the source holds none.
    """
    for node in ast.walk(made):
        # The arguments of the call are the user's own syntax, and keep their places.
        if isinstance(node, ast.expr) and not hasattr(node, "lineno"):
            ast.copy_location(node, place)
            node.end_lineno = place.lineno + 1
    return ast.fix_missing_locations(made)


def _einsum(node: ast.Call) -> ast.expr | None:
    """Translate `einsum(x, y, "b i, b j -> b i j")` to `torch.einsum("ab,ac->abc", x, y)`, with one letter per axis.

    None for a pattern with parentheses, and for more axes than letters: the call then stays as it is.
    """
    match node:
        case ast.Call(_, [*tensors, ast.Constant(str(pattern))], []) if (
            "(" not in pattern and pattern.count("->") == 1
        ):
            words = [word for word in TOKENS.findall(pattern) if word.isidentifier()]
            # The shorter one counts: with more than 52 axes some get no letter, as the next line sees.
            letters = dict(zip(dict.fromkeys(words), LETTERS, strict=False))
            if len(letters) < len({*words}):
                return None
            parts = (letters.get(word, word) for word in TOKENS.findall(pattern))
            torch = ast.Name("torch", ast.Load())
            callee = ast.Attribute(torch, "einsum", ast.Load())
            return ast.Call(callee, [ast.Constant("".join(parts)), *tensors], [])
    return None


def _rearranged(node: ast.Call, function: str) -> ast.expr | None:
    """Return the PyTorch calls for `rearrange`, `repeat` or `reduce` (`function`); None if the call is not understood.

    A list of tensors is stacked first, as einops does. The left side of the pattern splits dims, then axes are moved, reduced or
    added, and the right side joins them.
    """
    reduction = ""
    match node.args:
        case [x, ast.Constant(str(pattern)), ast.Constant(str(kind))]:
            reduction = REDUCTIONS.get(kind, "")
        case [x, ast.Constant(str(pattern))]:
            pass
        case _:
            return None
    if bool(reduction) != (function == "reduce"):
        return None  # an unknown reduction, or one too many
    if isinstance(x, ast.List | ast.Tuple):
        torch = ast.Name("torch", ast.Load())
        x = ast.Call(ast.Attribute(torch, "stack", ast.Load()), [x], [])
    sides = [_groups(side) for side in pattern.split("->")]
    sizes = {word.arg: word.value for word in node.keywords if word.arg}
    if len(sides) != 2 or len(sizes) < len(node.keywords):
        return None  # no one arrow, or `**sizes`
    left, right = sides
    if left is None or right is None:
        return None
    moving = _Moving(x, sizes)
    fits = moving.split(left) and moving.moved(_all_axes(right), function, reduction)
    return moving.joined(right) if fits else None


def _groups(side: str) -> list[Group] | None:
    """Return the groups of one side of a pattern: `b (h d)` has the axes `b`, and `h` and `d` joined; None if invalid."""
    found, inner = list[Group](), False
    for word in TOKENS.findall(side):
        if word == "(" and not inner:
            found.append(Group([], True))
            inner = True
        elif word == ")" and inner:
            inner = False
        elif word == MORE or word.isidentifier():
            if not inner:
                found.append(Group([], False))
            found[-1].axes.append(word)
        elif word == "1":
            # In parentheses, `(h 1)`, a size of 1 changes nothing.
            found += [] if inner else [Group([], False)]
        else:
            return None
    axes = _all_axes(found)
    # Invalid: an open parenthesis, an axis named twice.
    return None if inner or len(axes) > len({*axes}) else found


def _all_axes(groups: Sequence[Group]) -> list[str]:
    return [axis for group in groups for axis in group.axes]


def _indices(axes: Sequence[str]) -> dict[str, int]:
    """Return the index of each axis, except `...`; after `...` it is negative, counted from the end."""
    more = axes.index(MORE) if MORE in axes else len(axes)
    return {
        axis: at if at < more else at - len(axes)
        for at, axis in enumerate(axes)
        if axis != MORE
    }


def _safe_order(several: Sequence[int]) -> list[int]:
    """Order dims for splitting: a split adds dims, and in this order does not shift the index of the next one.

    Dims counted from the front come first, the last of them leading; then those counted from the end (negative), the first leading.
    """
    front = [at for at in several if at >= 0]
    return [*sorted(front, reverse=True), *sorted({*several} - {*front})]


class _Moving:
    """A tensor expression under construction, with the current axis of each of its dims."""

    def __init__(self, x: ast.expr, sizes: Mapping[str, ast.expr]) -> None:
        """Begin with the tensor `x`; `sizes` are the sizes of axes given in the call, `h=8`."""
        self.x, self.sizes = x, sizes
        self.axes: list[str] = []

    def _call(self, name: str, *args: int | ast.expr | Sequence[ast.expr]) -> None:
        """Append a call of a method to the expression: `x` becomes `x.transpose(1, 2)`."""
        given = [_argument(item) for item in args]
        self.x = ast.Call(ast.Attribute(self.x, name, ast.Load()), given, [])

    def split(self, left: list[Group]) -> bool:
        """Give each axis of the pattern's left side (its groups) a dim to itself; return whether this is possible.

        It is not if two axes of one dim have no size, or if `...` is in parentheses. `(h w) c` with `h=2` gives
        `x.unflatten(0, (2, -1))`; a dim of no axis, written `1` or `()`, is squeezed.
        """
        for at, group in _by_place(left):
            unsized = [axis for axis in group.axes if axis not in self.sizes]
            # One size may be missing: `unflatten` computes it, for -1.
            if MORE in group.axes or len(unsized) > 1:
                return False
            if not group.axes:
                self._call("squeeze", at)
            elif len(group.axes) > 1:
                parts = [self.sizes.get(axis) or _number(-1) for axis in group.axes]
                self._call("unflatten", at, parts)
        self.axes = _all_axes(left)
        return True

    def moved(self, wanted: list[str], function: str, reduction: str) -> bool:
        """Bring the axes into the order `wanted`: reduce those not in it, repeat along new ones; return whether this is possible.

        `function` is the one of einops; only `repeat` may add axes. `reduction` is the method for axes not wanted, such as `mean`,
        "" for none. `...` cannot be added; to be reduced, its dims are merged into one first.
        """
        # The left side has `...` and the right side does not: these dims are reduced.
        if MORE not in wanted and MORE in self.axes:
            self._merge_ellipsis()
        gone = [axis for axis in self.axes if axis not in wanted]
        new = [axis for axis in wanted if axis not in self.axes]
        # `...` is still among `new` ones if only the right side has it.
        if MORE in (*gone, *new) or new and function != "repeat":
            return False
        if gone and not reduction or not {*new} <= self.sizes.keys():
            return False
        if gone:
            places = _indices(self.axes)
            self._call(reduction, _one_or_several([places[axis] for axis in gone]))
        self._permute(
            [axis for axis in self.axes if axis not in gone],
            [axis for axis in wanted if axis not in new],
        )
        self._add_axes(wanted, new)
        self.axes = wanted
        return True

    def _merge_ellipsis(self) -> None:
        """Merge the dims of `...` into one axis, so it can be reduced; if there are none, it is a new dim of size 1."""
        at = self.axes.index(MORE)
        # From the new dim to the last one of `...`, counted from the end: itself if `...` is empty.
        self._call("unsqueeze", at)
        self._call("flatten", at, at - len(self.axes))
        self.axes[at] = f"{MORE} as one"

    def _permute(self, axes: list[str], wanted: list[str]) -> None:
        """Permute the dims from the order `axes` into the order `wanted` of the same axes.

        It is `transpose` if two change places, `movedim` beside `...`, else `permute`.
        """
        before, after = _indices(axes), _indices(wanted)
        moves = [
            axis for axis in wanted if axis != MORE and before[axis] != after[axis]
        ]
        if not moves:
            return
        # The indices of the moving axes before, and after.
        ends = [[places[axis] for axis in moves] for places in (before, after)]
        if len(moves) == 2 and ends[0] == ends[1][::-1]:
            self._call("transpose", *sorted(ends[0]))
        elif MORE in axes:  # `permute` would need all dims, and their number is unknown
            self._call("movedim", *map(_one_or_several, ends))
        else:
            self._call("permute", *(before[axis] for axis in wanted))

    def _add_axes(self, wanted: list[str], new: list[str]) -> None:
        """Add the new axes, of size 1, and repeat the tensor along them; `wanted` are all axes of the result.

        It is one `expand` of all dims; with `...`, whose number of dims is unknown, a `repeat_interleave` for each new axis.
        """
        places = _indices(wanted)
        # Adding dims one by one needs the order opposite to that of a split.
        for at in reversed(_safe_order([places[axis] for axis in new])):
            self._call("unsqueeze", at)
            if MORE in wanted:
                axis = next(axis for axis in new if places[axis] == at)
                self._call("repeat_interleave", self.sizes[axis], at)
        if new and MORE not in wanted:
            self._call(
                "expand", *(self.sizes[axis] if axis in new else -1 for axis in wanted)
            )

    def joined(self, right: list[Group]) -> ast.expr:
        """Return the tensor with the dims of each group in parentheses flattened, and a dim of size 1 for each `1`."""
        # `...` is any number of dims, so a dim behind it is counted from the last: -1, -2.
        count = len(self.axes)
        more = self.axes.index(MORE) if MORE in self.axes else count
        last_of: dict[int, int] = {}  # the first dim of each group -> its last one
        for axes in (group.axes for group in right if group.joined and group.axes):
            first = self.axes.index(axes[0])
            last = first + len(axes) - 1
            # One axis needs no flatten, but `(...)` may be several dims.
            if last > first or first == more:
                # A group with `...` begins at a known place from the front, and ends at one from the last.
                start = first if first <= more else first - count
                last_of[start] = last if last < more else last - count
        # First the group that contains `...`: for all others both ends are counted from
        # the same side, so that flattening one does not shift another.
        mixed = [first for first, last in last_of.items() if first >= 0 > last]
        others = _safe_order([first for first in last_of if first not in mixed])
        for first in (*mixed, *others):
            self._call("flatten", first, last_of[first])
        for at, group in reversed(_by_place(right)):
            if not group.axes:
                self._call("unsqueeze", at)
        return self.x


def _by_place(groups: Sequence[Group]) -> list[tuple[int, Group]]:
    """Return the groups except `...`, each with the index of its dim, in the order of `_safe_order` for splitting."""
    count = len(groups)
    more = groups.index(ELLIPSIS) if ELLIPSIS in groups else count
    found = {
        at if at < more else at - count: group
        for at, group in enumerate(groups)
        if at != more
    }
    return [(at, found[at]) for at in _safe_order([*found])]


def _one_or_several(places: list[int]) -> int | list[ast.expr]:
    return places[0] if len(places) == 1 else [_number(at) for at in places]


def _argument(item: int | ast.expr | Sequence[ast.expr]) -> ast.expr:
    """Return the syntax of an argument: a number as a literal, a sequence as a tuple."""
    match item:
        case int():
            return _number(item)
        case ast.expr():
            return item
    return ast.Tuple([*item], ast.Load())


def _number(value: int) -> ast.expr:
    made: ast.expr = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), made) if value < 0 else made
