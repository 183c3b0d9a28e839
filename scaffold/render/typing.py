"""Expressions a type checker knows to be a `Tensor`; others get an annotation in generated code.

PyTorch's stubs type most functions, but not all: mypy sees `Any` there, and `--strict` refuses to return it from a function that promises a
Tensor. In: nodes and the names annotated as tensors. Out: whether the value is known to be a `Tensor`.
Invariant: in doubt it is not, and gets an annotation in the generated code.
Words: a line is *ignored* if a comment, `# type: ignore[...]`, tells a checker so; a name is *known* if its type is.
"""

import re
from collections.abc import Collection, Iterable

from scaffold.derive.derivation import LINE, METHOD, STEP
from scaffold.formula import (
    Lines,
    Node,
    Statement,
    assignments,
    bound,
    emit,
    emit_lines,
    unpacked,
    written,
)
from scaffold.formula.names import fresh, numbered
from scaffold.primitives.calls import is_untyped
from scaffold.spec import OpSpec

MODULES = frozenset({"torch", "F"})
UNTYPED = "torch.broadcast_shapes("  # strict checkers reject it in typed code
IGNORED = "  # type: ignore[no-untyped-call]"
LONG = 60  # characters of a line of a body, not indented yet
# Characters of such a line below `with`: a formatter does not break a line with that comment.
WIDTH = LINE - METHOD - STEP


def is_typed(node: Node, tensors: frozenset[str]) -> bool:
    """Return whether `mypy` infers a better type than `Any` for the expression."""
    match node:
        case Node("name", name):
            return name in tensors
        case Node("call", _, (Node("attribute", label, (value,)), *_)):
            of_torch = value.kind == "name" and value.label in MODULES
            return not is_untyped(label) and (of_torch or is_typed(value, tensors))
        case Node("attribute" | "unary" | "subscript", _, (value, *_)):
            return is_typed(value, tensors)
        case Node("binary" | "compare" | "boolean", _, operands):
            return all(is_typed(operand, tensors) for operand in operands)
        case Node("conditional", _, (_, body, orelse)):
            return is_typed(body, tensors) and is_typed(orelse, tensors)
    return node.kind in ("constant", "tuple", "list")


def typed_names(
    statements: Iterable[Statement], tensors: frozenset[str]
) -> frozenset[str]:
    """Return the names a type checker knows to be tensors after the statements, judged by the first assignment to each."""
    known, seen = set(tensors), set(tensors)
    for item in assignments(statements):
        # `x += y` gives x no new type.
        pairs = () if item.operator else unpacked(item.target, item.value)
        for target, value in pairs:
            if is_typed(value, frozenset(known)):
                # A name keeps the type of its first assignment.
                known |= bound(target) - seen
            seen |= bound(target)
    return frozenset(known)


def annotated_body(
    statements: Lines,
    result: Node,
    tensors: frozenset[str],
    name: str,
    *,
    strict: bool,
) -> tuple[list[str], str]:
    """Return the statements as lines, and the text to return: an annotated name, if the type is unknown and a strict checker needs it.

    `return torch.foo(x)` -> `output: Tensor = torch.foo(x)`, `return output`; if the result is a local already, its first assignment gets the
    annotation. `name` is the one to annotate, `tensors` are the names known to be tensors.
    """
    lines, value = emit_lines(statements), emit(result)
    # `sum(...)` is annotated in any case, with a comment that every checker needs.
    if not (strict or any(map(_ignored, (*lines, value)))):
        return lines, value
    if is_typed(result, typed_names(statements, tensors)):
        return lines, value
    if _begins_plainly(statements, value):
        position = next(
            k for k, line in enumerate(lines) if line.lstrip().startswith(f"{value} = ")
        )
        first = lines[position].replace(" = ", ": Tensor = ", 1) + _ignored(
            lines[position]
        )
        return [*lines[:position], first, *lines[position + 1 :]], value
    taken = written(*statements)
    name = name if name not in taken else fresh("result", taken)
    return [*lines, f"{name}: Tensor = {value}{_ignored(value)}"], name


def typed_call(
    spec: OpSpec, name: str, called: str, returns: str, taken: Collection[str]
) -> tuple[list[str], str]:
    """Return lines to stand before a call, and the callee: for strict types a typed local for a function PyTorch leaves untyped.

    `apply: Callable[..., Tensor] = LinearFunction.apply`, and "apply". `called` is the function, `returns` its type, `name` the local,
    changed if it is among the `taken` ones.
    """
    if not spec.strict_types:
        return [], called
    name = fresh(name, taken)
    return [f"{name}: Callable[..., {returns}] = {called}"], name


def _ignored(code: str) -> str:
    """Return a comment for a type checker on a `sum(...)`, as the sum of no tensors is the number 0; else ""."""
    summed = re.fullmatch(r"\s*(\w+ = )?sum\([^()]*\)", code) is not None
    return "  # type: ignore[assignment]" if summed else ""


def untyped_calls_ignored(lines: Iterable[str], *, strict: bool) -> list[str]:
    """Return the lines with comments for a strict type checker to ignore the missing type of `torch.broadcast_shapes`.

    The comment keeps a formatter from breaking a line, so in a long line the shape gets a line of its own, broken by hand if
    even that is long. It is read only in the next line, so all shapes share one name.
    """
    found, done = [*lines], list[str]()
    if not strict:
        return found
    taken = {*re.findall(r"(?<![.\w])\w+", "\n".join(found))}
    name = numbered("shape", taken) if "shape" in taken else "shape"
    for line in found:
        long = UNTYPED in line and len(line) > LONG
        # No line may stand before an `elif`. One that only assigns the call needs no name: `_ignored_call` breaks it.
        stays = line.lstrip().startswith("elif ") or _begins_with_it(line)
        if long and not stays:
            call = _whole_call(line)
            indent = line[: len(line) - len(line.lstrip())]
            done += _ignored_call(f"{indent}{name} = {call}")
            line = line.replace(call, name)
        done += _ignored_call(line) if UNTYPED in line else [line]
    return done


def _ignored_call(line: str) -> list[str]:
    """Return a line with the comment on its call; broken after the bracket if it is too long, as no formatter breaks it."""
    if len(line) <= WIDTH or not _begins_with_it(line):
        return [f"{line}{IGNORED}"]
    indent = line[: len(line) - len(line.lstrip())]
    head, _, arguments = line.partition(UNTYPED)
    shapes = f"{indent}    {arguments.removesuffix(')')}"
    return [f"{head}{UNTYPED}{IGNORED}", shapes, f"{indent})"]


def _begins_with_it(line: str) -> bool:
    """Return whether a line assigns such a call alone."""
    return line.partition(" = ")[2].startswith(UNTYPED) and line.endswith(
        _whole_call(line)
    )


def _whole_call(line: str) -> str:
    """Return the first such call in a line, up to its closing bracket."""
    start = line.index(UNTYPED)
    end, depth = start + len(UNTYPED), 1
    while depth:
        depth += {"(": 1, ")": -1}.get(line[end], 0)
        end += 1
    return line[start:end]


def _begins_plainly(statements: Lines, name: str) -> bool:
    """Return whether the first assignment to the local `name` has it as sole target, so it can take an annotation; False without one."""
    for item in assignments(statements):
        if name in written(item):
            return item.target.kind == "name" and not item.operator
    return False
