"""Bodies: a Function's forward and backward as functions of a file, with values instead of ctx.

`adopting` calls these functions in the op's formulas. The author's text is edited place by place, not printed from a syntax tree,
so comments and layout stay:

    def forward(ctx, x, n):               def scale_forward(x, n):
        ctx.save_for_backward(x)    ->        return x * n
        return x * n                      def scale_backward(grad, x): ...

Words: *passed* are the values on ctx (`Handed`), each with the op's argument for it (`given`) and perhaps a *local* of forward
that holds it, returned beside the outputs; *elements* are those of a tuple on ctx, saved tensors or `ctx.pair`; what is
*gone* is removed from the text; a file's *own* names are defined in it, not imported.

In: the facts of a Function and the values passed by ctx. Out: the text of a file of two functions, with the imports they need.
Invariant: the statements are those of the Function, in their order, comments included; uses of ctx become parameters and
results. A name missing at the top level of the Function's file raises `Unfit`.
"""

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator, Sequence
from keyword import iskeyword
from typing import NamedTuple, TypeVar

from scaffold.formula.names import fresh, names_in, take
from scaffold.inspect.context import NEEDS, Handed
from scaffold.inspect.declarations import Unfit, output_kinds
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import blocks as parts_of
from scaffold.inspect.functions import Method

CALLS = {
    *("save_for_backward", "save_for_forward", "mark_dirty", "set_materialize_grads"),
    "mark_non_differentiable",
}


class Body(NamedTuple):
    """A function of the file as text, and the op's arguments for the parameters with values of ctx."""

    text: str
    given: tuple[str, ...] = ()
    leading: bool = False  # these come first, as backward takes `*grads`


def forward_body(
    facts: Facts, name: str, passed: Sequence[Handed], outputs: int
) -> Body:
    """Return the forward as a function without ctx; it also returns the locals backward reads.

    `name` is that of the new function, `passed` are the values on ctx, `outputs` is the number of outputs.
    `ctx.needs_input_grad` is replaced by `(True, True)`, so all that any backward reads is computed.
    """
    forward = facts.function.forward
    assert forward is not None
    text = _Text(facts, forward)
    has_ctx = facts.function.saver is forward
    # Attributes of ctx, each by the local that takes its place.
    locals_ = {i.attribute: i.local for i in passed if i.local and not i.brackets}
    made = [item.local for item in passed if item.local]
    if has_ctx:
        _rewrite_context(text, passed, locals_)
    for step in forward.flow.returns:
        assert isinstance(step.statement, ast.Return)
        if made:
            text.return_more(step.statement, made, outputs)
    needs = ", ".join("True" for _ in forward.positional)
    text.replace_attributes({NEEDS: f"({needs},)", **locals_})
    return Body(text.function(name, _parameters(forward), _unset(facts, passed)))


def backward_body(
    facts: Facts, name: str, passed: Sequence[Handed], outputs: int
) -> Body:
    """Return the backward as a function of the gradients, and of the saved tensors and attributes of ctx it reads.

    `name` is that of the new function, `outputs` the number of outputs. Each read of a value on ctx is replaced by a parameter,
    or by the value itself if it reads no input (`known`); `pairs` are these parameters, each with the op's argument for it.
    """
    backward = facts.function.backward
    assert backward is not None
    text = _Text(facts, backward)
    gradients = _gradients(facts, backward, outputs)
    taken = {*backward.flow.bindings, *(n.id for n in text.nodes(ast.Name))}
    taken |= {item.strip("*") for item in gradients}
    known, pairs = dict[str, str](), list[tuple[str, str]]()
    read = [node.attr for node in text.attributes()]
    old = "saved_variables"  # the same by its old name
    saved = old if old in read else "saved_tensors"
    for attribute, items in _lists(passed, saved).items():
        names = _elements(text, attribute, items, taken)
        pairs += zip(names, (item.given for item in items), strict=True)
        brackets = items[0].brackets or "()" if items else "()"
        listed = ", ".join(names) + "," * (len(names) == 1)
        known[attribute] = f"{brackets[0]}{listed}{brackets[1]}"
    for item in passed:
        if item.attribute in known or item.attribute not in read:
            continue  # part of a tuple, a saved tensor (""), or not read
        constant = _reads_nothing(facts, item.given)
        atom = isinstance(ast.parse(item.given, mode="eval").body, ast.Constant)
        value = item.given if atom else f"({item.given})"  # `2`, `(n * 2)`
        if not constant:
            value = _parameter(text, item.attribute, item.attribute, taken)
            pairs.append((value, item.given))
        known[item.attribute] = value
    if NEEDS in read:
        known[NEEDS] = take(taken, NEEDS)
        pairs.append((known[NEEDS], NEEDS))
    text.replace_attributes(known)
    own = [parameter for parameter, _ in pairs]
    several = any(item[0] == "*" for item in gradients)  # it must be last
    parameters = [*own, *gradients] if several else [*gradients, *own]
    function = text.function(name, ", ".join(parameters))
    return Body(function, tuple(given for _, given in pairs), several)


def _lists(
    passed: Sequence[Handed], saved: str = "saved_tensors"
) -> dict[str, list[Handed]]:
    """Return the values passed as elements of a tuple or a list on ctx, by its attribute: `pair` for `ctx.pair = x, n`.

    The saved tensors are under `saved`: the name backward reads them by, `saved_tensors` or the older `saved_variables`.
    """
    found: dict[str, list[Handed]] = {saved: []}
    for item in passed:
        if item.brackets or not item.attribute:
            found.setdefault(item.attribute or saved, []).append(item)
    return found


def _elements(
    text: "_Text", attribute: str, items: Sequence[Handed], taken: set[str]
) -> list[str]:
    """Return the parameters of backward for the elements of the tuple `ctx.{attribute}`, and edit `text` to read them.

    They are the names it is unpacked to, `x, w = ctx.saved_tensors`, else new ones, not in `taken`.
    """
    names = _unpacked(text, attribute, len(items))
    if names is None:
        names = [
            _parameter(text, f"{attribute}[{at}]", item.given, taken)
            for at, item in enumerate(items)
        ]
        text.replace_elements(attribute, names)
    return names


def _gradients(facts: Facts, backward: Method, outputs: int) -> list[str]:
    """Return the parameters of backward for the gradients of the outputs, an output without one left out.

    Raise Unfit if backward reads the gradient of such an output, or takes more gradients than there are outputs (`outputs`).
    With `*grads` in backward the last one has a star.
    """
    positional = [item.name for item in backward.positional]
    if backward.variadic is not None:
        positional = positional[:outputs]
    kinds = output_kinds(facts, outputs)
    # A trivial backward is not written: the op has a forward alone.
    if len(positional) > outputs and not facts.is_trivial:
        message = f"backward takes {len(positional)} gradients, and forward gives {outputs} outputs"
        raise Unfit(backward.node, message)
    read = names_in([backward.node])
    found = []
    # Fewer names than outputs if `*grads` takes the rest; more only if backward is trivial.
    for name, kind in zip(positional, kinds, strict=False):
        if kind and name in read:
            raise Unfit(backward.node, f"'{name}' is of an output without a gradient")
        found += [] if kind else [name]
    rest = len(positional) < outputs and backward.variadic
    return (
        [*found, f"*{backward.variadic.name}"] if rest and backward.variadic else found
    )


def _reads_nothing(facts: Facts, given: str) -> bool:
    """Return whether an expression reads only names of the module, no input: it can then be written out in backward."""
    names = names_in([ast.parse(given)])
    known = names <= module_names(facts) | set(dir(builtins))
    return known and not names & {NEEDS, *(item.name for item in facts.inputs)}


def _parameter(text: "_Text", attribute: str, usual: str, taken: set[str]) -> str:
    """Return the name of backward's parameter for the value `ctx.{attribute}`.

    It is the name bound by a sole statement, `eps = ctx.eps`, which is then removed from the text; else `usual`, if it can be a
    name, or one like it if that is `taken`, to which the new name is added.
    """
    method = text.method
    for name, bounds in method.flow.bindings.items():
        statement = method.flow.steps[bounds[0].order].statement
        given = f"{name} = {method.ctx}.{attribute}"
        if (
            len(bounds) == 1
            and not bounds[0].guards
            and ast.unparse(statement) == given
        ):
            text.remove(statement)
            return name
    is_name = usual.isidentifier() and not iskeyword(usual)
    return take(taken, usual if is_name else "saved")


def _unpacked(text: "_Text", attribute: str, count: int) -> list[str] | None:
    """Return the names in `x, w = ctx.saved_tensors`, and remove this statement; None if the attribute is read otherwise.

    The statement must be the only read of the attribute, stand in no branch, and bind `count` different names.
    """
    reads = [n for n in text.attributes() if n.attr == attribute]
    for step in text.method.flow.steps:
        statement = step.statement
        if step.guards or len(reads) != 1 or not isinstance(statement, ast.Assign):
            continue
        target, *more = statement.targets
        if statement.value not in reads or more:  # `a = b = ctx.saved_tensors`
            continue
        elements = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        names = [item.id for item in elements if isinstance(item, ast.Name)]
        if len(names) == len(elements) == len(set(names)) == count:
            text.remove(statement)
            return names
    return None


def _parameters(method: Method) -> str:
    """Return the parameters of a method as text, without ctx, annotations or defaults; the op has the defaults."""
    given = [item for item in method.parameters if item.passing == "keyword"]
    keywords = [f"{x.name}={ast.unparse(x.default)}" for x in given if x.default]
    names = [item.name for item in method.positional]
    return ", ".join([*names, *["*"] * bool(keywords), *keywords])


def _unset(facts: Facts, passed: Sequence[Handed]) -> list[str]:
    """Return lines `h = None`, to stand first in the forward, for the locals it keeps in some branches only (`guarded`).

    The new return reads them in every case.
    """
    given = {item.name for item in facts.inputs}
    return [
        f"{item.local} = None"
        for item in passed
        # An input is set in every branch: it is a parameter.
        if item.guarded and item.local and item.local not in given
    ]


def _rewrite_context(
    text: "_Text", passed: Sequence[Handed], locals_: dict[str, str]
) -> None:
    """Remove the statements on ctx from a forward, and bind locals to values it saves under no lasting name.

    `ctx.save_for_backward(x + 1)` -> `tensor_saved = x + 1`. `ctx.scale = scale` goes, unless forward reads `ctx.scale` or
    returns another local for it. What is left of an attribute, the caller turns into the local `locals_` has or gets for it here.
    """
    method = text.method
    captured = [
        f"{item.local} = {text.source(item.kept)}"
        for item in passed
        if item.kept is not None and not item.attribute  # a saved tensor
    ]
    loads = {n.attr for n in text.attributes() if isinstance(n.ctx, ast.Load)}
    lists = {name: items for name, items in _lists(passed).items() if items}
    for step in method.flow.steps:
        statement = step.statement
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = statement.value.func
            if isinstance(called, ast.Attribute) and called.attr in CALLS:
                saves = called.attr == "save_for_backward"
                text.remove(statement, captured if saves else ())
        elif isinstance(statement, ast.Assign) and _attribute(text, statement) in lists:
            items = lists[_attribute(text, statement)]
            text.remove(statement, _assigned(text, items, statement.value))
        elif isinstance(statement, ast.Assign):
            names = [
                target.attr
                for target in statement.targets
                if isinstance(target, ast.Attribute) and text.is_ctx(target)
            ]
            returned = {locals_[name] for name in names if name in locals_}
            needless = returned <= {ast.unparse(statement.value)}  # `ctx.h = h`
            only_ctx = len(names) == len(statement.targets)  # no `y = ctx.y = h`
            if only_ctx and needless and loads.isdisjoint(names):
                text.remove(statement)
    for step in reversed(method.flow.steps):  # inner ifs first
        text.remove_if_empty(step.statement)
    for node in text.attributes():
        if isinstance(node.ctx, ast.Store):
            locals_.setdefault(node.attr, fresh(node.attr, text.names))


def _attribute(text: "_Text", statement: ast.Assign) -> str:
    """Return the attribute of ctx a statement assigns alone, else ""."""
    target, *more = statement.targets
    alone = isinstance(target, ast.Attribute) and text.is_ctx(target) and not more
    return target.attr if alone else ""  # type: ignore[attr-defined]


def _assigned(text: "_Text", items: Iterable[Handed], value: ast.expr) -> Iterator[str]:
    """Yield one assignment for the elements of `ctx.pair = x + 1, y`, as text: `pair_0 = x + 1`; none if each is a local already.

    `value` is the tuple, `items` are the counterparts of its elements: an element without a local is computed again in backward.
    """
    texts = map(text.source, value.elts)  # type: ignore[attr-defined]
    pairs = [(item.local, one) for item, one in zip(items, texts, strict=True)]
    # "": backward computes it again. Equal texts: the element is this local already.
    made = [(local, one) for local, one in pairs if local not in ("", one)]
    if made:
        yield " = ".join(map(", ".join, zip(*made, strict=True)))


Place = tuple[int, int]  # line from 1, column in bytes from 0


Kind = TypeVar("Kind", bound=ast.AST)


class _Text:
    """The lines of a method, and edits to them: (start, end, new text), all applied at once by `function`."""

    def __init__(self, facts: Facts, method: Method) -> None:
        """Start without edits to the lines of a method; its docstring is no part of its body."""
        self.facts, self.method = facts, method
        body = method.node.body
        first = body[0]
        documented = isinstance(first, ast.Expr) and isinstance(
            first.value, ast.Constant
        )
        self.body = body[1:] if documented else body
        self.lines = facts.module.text.split("\n")
        self.edits: list[tuple[Place, Place, str]] = []
        self.removed: list[ast.stmt] = []
        self.replaced: set[int] = set()  # ids of `ctx.pair` in edited `ctx.pair[0]`

    @property
    def names(self) -> set[str]:
        """Return the names in use in the method, parameters included."""
        return {node.id for node in self.nodes(ast.Name)} | set(
            self.method.flow.parameters
        )

    def nodes(self, kind: type[Kind]) -> list[Kind]:
        """Return the nodes of a kind in the body, the docstring left out."""
        inner = (node for item in self.body for node in ast.walk(item))
        return [node for node in inner if isinstance(node, kind)]

    def is_ctx(self, node: ast.Attribute) -> bool:
        return isinstance(node.value, ast.Name) and node.value.id == self.method.ctx

    def attributes(self) -> list[ast.Attribute]:
        """Return the attributes of ctx."""
        return [node for node in self.nodes(ast.Attribute) if self.is_ctx(node)]

    def source(self, node: ast.AST) -> str:
        """Return the text of a node, in parentheses if it has several lines, so that it can stand in one statement."""
        segment = ast.get_source_segment(self.facts.module.text, node) or ""
        return f"({segment})" if "\n" in segment else segment

    def remove(self, statement: ast.stmt, instead: Iterable[str] = ()) -> None:
        """Remove a statement, or put others in its place: the texts `instead`."""
        self.removed.append(statement)
        self._edit(statement, "; ".join(instead))

    def remove_if_empty(self, statement: ast.stmt) -> None:
        """Remove an `if` with nothing left in it, unless its test calls something: the call may have an effect."""
        if not isinstance(statement, ast.If):
            return
        # It is empty if an edit deletes each of its statements; the edit of the whole replaces those.
        inner = [*statement.body, *statement.orelse]
        places = {(_place(item), _end(item), "") for item in inner}
        calls = any(isinstance(node, ast.Call) for node in ast.walk(statement.test))
        if places <= {*self.edits} and not calls:
            self.edits = [edit for edit in self.edits if edit not in places]
            self.remove(statement)

    def replace_attributes(self, known: dict[str, str]) -> None:
        """Replace attributes of ctx by their text in `known`, `ctx.dim` by `dim`.

        Raise Unfit for any other use of ctx: an attribute not in `known`, one that backward sets, or ctx passed to a call.
        """
        gone = {id(node) for item in self.removed for node in ast.walk(item)}
        owners = set()  # the uses of ctx as the owner of an attribute
        for node in self.attributes():
            owners.add(id(node.value))
            # Removed with its statement, or replaced together with its index, `ctx.pair[0]`.
            if id(node) in gone | self.replaced:
                continue
            if (
                node.attr not in known
                # `ctx.n = 1` in backward: the values of ctx are parameters there.
                or self.method is self.facts.function.backward
                and not isinstance(node.ctx, ast.Load)
            ):
                raise Unfit(node, f"ctx.{node.attr} is not set in sight")
            self._edit(node, known[node.attr])
        for name in self.nodes(ast.Name):
            # `helper(ctx)` or `c = ctx`: what is done with ctx there is out of sight.
            if name.id == self.method.ctx and id(name) not in owners | gone:
                raise Unfit(name, "ctx itself is handed on")

    def replace_elements(self, attribute: str, names: Sequence[str]) -> None:
        """Replace `ctx.saved_tensors[0]` by the first of `names`, and so on; with an index that is no number in the text it stays."""
        gone = {id(node) for item in self.removed for node in ast.walk(item)}
        for node in self.nodes(ast.Subscript):
            index, value = node.slice, node.value
            saved = isinstance(value, ast.Attribute) and self.is_ctx(value)
            if not saved or value.attr != attribute or id(node) in gone:  # type: ignore[attr-defined]
                continue
            at = index.value if isinstance(index, ast.Constant) else None
            # With another index the attribute becomes the whole tuple later: `(x, w)[i]`.
            if isinstance(at, int) and at < len(names):
                self.replaced.add(id(value))
                self._edit(node, names[at])

    def return_more(self, statement: ast.Return, more: list[str], outputs: int) -> None:
        """Let a return give further values after the outputs: `return y` -> `return y, x_saved`.

        `outputs` is the number of outputs. A value that gives several, or a tuple in parentheses, is unpacked:
        `return f(x)` -> `return *(f(x)), x_saved`. Raise Unfit if nothing is returned.
        """
        value = statement.value
        if value is None:
            raise Unfit(statement, "forward returns nothing")
        start, end = _place(statement), _end(statement)
        after = (start[0], start[1] + len("return"))
        listed = isinstance(value, ast.Tuple) and self._is_bare(value)
        if not listed and (outputs > 1 or isinstance(value, ast.Tuple)):
            self.edits += [(after, after, " *("), (end, end, f"), {', '.join(more)}")]
        else:
            self.edits.append((end, end, f", {', '.join(more)}"))

    def _is_bare(self, value: ast.Tuple) -> bool:
        """Return whether a tuple has no parentheses of its own: `(a), (b)` has none.

        Without its first and last character, `a), (b`, it is then no expression.
        """
        segment = self.source(value)
        if not segment.startswith("("):
            return True
        try:
            ast.parse(segment[1:-1].strip(), mode="eval")
        except SyntaxError:
            return True
        return False

    def _edit(self, node: ast.AST, text: str) -> None:
        self.edits.append((_place(node), _end(node), text))

    def function(self, name: str, parameters: str, before: Sequence[str] = ()) -> str:
        """Return the edited method as a function of a file, its comments included; the lines `before` come first in its body.

        Edits are applied from the last to the first, so that earlier positions stay true. Columns of `ast` count bytes, so rows
        are bytes. An emptied block gets `pass` (`needed` are its lines); any other emptied line is deleted.
        """
        first, last = self.body[0], self.body[-1]
        start, stop = first.lineno, last.end_lineno or last.lineno
        # Comments above the first statement belong to the body.
        while self.lines[start - 2].strip().startswith("#"):
            start -= 1
        rows = {at: self.lines[at - 1].encode() for at in range(start, stop + 1)}
        # `def f(ctx): return 1` in one line: only the body is kept.
        signature, rest = rows[first.lineno][: first.col_offset], rows[first.lineno]
        rows[first.lineno] = b" " * len(signature) + rest[len(signature) :]
        needed = self._needed()
        for (row, column), (end_row, end_column), text in sorted(
            self.edits, reverse=True
        ):
            left, right = rows[row][:column], rows[end_row][end_column:]
            for at in range(row + 1, end_row + 1):  # they become one line
                del rows[at]
            # Beside other code, `if c: ctx.n = n`, or alone in its block: a statement has to remain.
            if not text and (left.strip() or b";" in right or row in needed):
                text = "pass"
            # A comment behind a removed statement goes with it.
            emptied = not text and right.strip()[:1] in (b"", b"#")
            rows[row] = left + text.encode() + right
            if emptied:
                del rows[row]
        strings = self._string_lines()
        lines = [
            (
                row.decode()
                if at in strings
                else f"    {_dedented(row.decode(), first.col_offset)}".rstrip()
            )
            for at, row in rows.items()
        ]
        unset = [f"    {line}" for line in before]
        return "\n".join([f"def {name}({parameters}):", *unset, *lines])

    def _needed(self) -> set[int]:
        """Return the first lines of blocks with all their statements removed: a `pass` must stand there.

        A block is the body or the else of an `if`, a loop, a `with`; empty, it would be no Python.
        """
        blocks = (
            block
            for node in ast.walk(self.method.node)
            if isinstance(node, ast.stmt)
            for _, block in parts_of(node)
        )
        return {
            block[0].lineno
            for block in blocks
            if all(item in self.removed for item in block)
        }

    def _string_lines(self) -> set[int]:
        """Return the lines beginning inside a string of several lines: their indentation is part of it, and must stay."""
        return {
            line
            for node in self.nodes(ast.Constant | ast.JoinedStr)  # type: ignore[arg-type]
            if isinstance(node, ast.JoinedStr)
            or isinstance(getattr(node, "value", 0), str | bytes)
            for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)
        }


def _place(node: ast.AST) -> Place:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> Place:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _dedented(text: str, indent: int) -> str:
    """Remove the method's indentation from a line; a line with less begins at the margin."""
    return text[indent:] if not text[:indent].strip() else text.lstrip()


def file_text(facts: Facts, op: str, module: str, functions: Sequence[str]) -> str:
    """Return the text of the file with the op's forward and backward, the texts `functions`, and the imports they need.

    `op` is the op's name, `module` that of the Function's own file.
    """
    body = "\n\n\n".join(functions)
    head = f'"""The forward and backward of {op}, as they stood in {module}."""'
    imports = "\n".join(imports_of(facts, body, module))
    above = "\n\n".join(filter(None, (head, imports)))
    return f"{above}\n\n\n{body}\n"


def imports_of(facts: Facts, text: str, module: str) -> Iterator[str]:
    """Yield the import lines the bodies (`text`) need: from other modules, and from their old file, `module`.

    `own` are names the old file defines itself, `imported` its absolute imports, each of one name, `theirs` the names to import from
    the old file: its own, and those it has by a relative import. Raise Unfit for a name it does not define, or if it is no module.
    """
    own = module_names(facts, own=True)
    # `max` is Python's, unless the file defines a `max` of its own.
    free = _free_names(facts, text) - (set(dir(builtins)) - own)
    imported: dict[str, ast.stmt] = {}
    for node in ast.walk(facts.module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                if isinstance(node, ast.Import):
                    imported[name] = ast.Import([alias])
                # A relative import may mean another module in the new file: the old file passes its name on.
                elif not node.level:
                    imported[name] = ast.ImportFrom(node.module, [alias], 0)
    theirs = [name for name in sorted(free) if name in own or name not in imported]
    lines = [ast.unparse(imported[name]) for name in sorted(free.difference(theirs))]
    unknown = set(theirs) - module_names(facts)
    if unknown:
        raise Unfit(
            facts.function.node, f"'{min(unknown)}' is not defined in its module"
        )
    if theirs and not all(part.isidentifier() for part in module.split(".")):
        raise Unfit(facts.function.node, f"'{module}' cannot be imported from")
    if theirs:
        lines.append(f"from {module} import {', '.join(theirs)}")
    # `import` lines stand before `from` lines.
    yield from sorted(lines, key=lambda line: (line.startswith("from"), line))


def imported_by(facts: Facts, given: Sequence[str], module: str) -> list[str]:
    """Return the imports for the names in `given`, in the form of the key `import`: `module:name`.

    `given` are the arguments of the op's calls, texts such as `SCALE * n`: the op's own file then needs `SCALE`. `module` is the
    Function's own, to import from it the names it defines.
    """
    tree = ast.parse("\n".join(given))
    read = names_in([tree])
    # Formulas of an op read torch and math without an import.
    read -= {"torch", "math", *(item.name for item in facts.inputs)}
    own = module_names(facts, own=True)
    found = [f"{module}:{name}" for name in sorted(read & own)]
    for name in sorted(read - own):
        dotted = facts.names.imported.get(name, "")
        if dotted.startswith("."):
            found.append(f"{module}:{name}")
        elif dotted:
            source, _, last = dotted.rpartition(".")
            stem = f"{source}:{last}" if source else last
            found.append(stem if last == name else f"{stem} as {name}")
    return found


def _free_names(facts: Facts, text: str) -> set[str]:
    """Return the names the functions of a text read, but neither bind themselves nor define in it: they must be imported."""
    try:
        pending = [symtable.symtable(text, "bodies", "exec")]
    except SyntaxError:  # backward assigned to ctx: now to an expression
        raise Unfit(facts.function.node, "backward sets what ctx keeps") from None
    bound = {symbol.get_name() for symbol in pending[0].get_symbols()}
    found: set[str] = set()
    while pending:
        table = pending.pop()
        pending += table.get_children()
        # A global symbol of a function is one it reads and does not bind; outside of functions nothing is read.
        if table.get_type() != "module":
            found |= {s.get_name() for s in table.get_symbols() if s.is_global()}
    return found - bound


def module_names(facts: Facts, own: bool = False) -> set[str]:
    """Return the names bound at the top level of the Function's file, so another file can import them; with `own`, none it imports."""
    found = set() if own else set(facts.names.imported)
    pending: list[ast.AST] = list(facts.module.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        # What a lambda binds by `:=` is no name of the module.
        if isinstance(node, ast.Lambda | ast.expr_context):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return found
