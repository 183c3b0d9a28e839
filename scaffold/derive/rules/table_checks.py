"""Check a table of rules, usually a team's own: all problems at once, each with its place.

`scaffold` refuses a team's `rules.toml` by it before an op is derived.

In: the text of a table, and the one below it. Out: a `Table`, or `ScaffoldErrors`. Invariant: a table without problems can be read
by `rules`: no formula, spelling, sample or domain of it fails later.

Words: an entry is one section of the text, with the places of its keys; a head is the spelling of its call; `names` are the
parameters of the call. A problem is a `ScaffoldError` with a message, a place and often a hint; each `_bad_...` yields those of one
kind.
"""

from collections.abc import Iterable, Iterator
from keyword import kwlist
from typing import Any, NamedTuple

from scaffold.derive.graph.shape_rules import is_shape
from scaffold.derive.rules.call_bindings import Spelling, spelling
from scaffold.derive.rules.sample_calls import (
    Drawn,
    Sample,
    Several,
    read_domain,
    read_sample,
)
from scaffold.derive.rules.table import BUILDERS, Rule, Table, operands, read_rule
from scaffold.derive.simplify.identities import wrong_identity
from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.formula import (
    BUILTINS,
    Assign,
    Node,
    Scope,
    Statement,
    Text,
    judged,
    judged_value,
    parse,
)
from scaffold.primitives import CATEGORIES, Primitives, full_name, wrong_facts
from scaffold.primitives.facts import CHOICES, FLAGS
from scaffold.primitives.spelling import ROOTS
from scaffold.spec.toml import Places, parse_toml

# Categories without a gradient; keys of which one says it.
GRADIENTLESS = frozenset({"constant", "backward"})
SAYING_GRADIENTS = frozenset({"grad", "code", "value"})
STRING, STRINGS, FLAG = "a string", "an array of strings", "true or false"
WORDS = "a string, or an array of one for each result"
# Each key of a section, and what its value must be, for the message.
TYPES = {
    "call": STRING,
    "from": STRING,
    "also": STRINGS,
    "category": STRING,
    "kind": WORDS,
    "shape": STRING,
    "passes": "a whole number",
    "memory": STRING,
    "dtype": STRING,
    "in_place": FLAG,
    "words": STRINGS,
    "grad_words": STRINGS,
    "argument": STRING,
    "by_shape": STRING,
    "untyped": STRINGS,
    "unbatched": STRINGS,
    "power": "a number",
    "spread": "an array of two strings",
    "optional": STRINGS,
    "changes": STRINGS,
    "when": STRING,
    "let": "a table: let.rstd = '...'",
    "grad": "a table: grad.x = '...'",
    "fused": "a table: fused.x = '...'",
    "tangent": "a table: tangent.x = '...'",
    "composed": STRINGS,
    "simpler": STRINGS,
    "code": STRING,
    "triton": STRING,
    "value": STRING,
    "parts": STRING,
    "differentiable": STRINGS,
    "nondiff": STRINGS,
    "results": STRINGS,
    "domain": "a table: domain.x = '...'",
    "samples": STRINGS,
    "operands": STRINGS,
    "linear": FLAG,
    **dict.fromkeys(FLAGS, FLAG),
    **{
        key: " or ".join(f'"{word}"' for word in words)
        for key, words in CHOICES.items()
    },
    "complex": 'true, false or "only"',
}

EXAMPLES = {
    "call": "call = 'torch.exp(x)'",
    "category": "category = 'elementwise'",
    "samples": "samples = ['x[3, 4]']",
}


class Entry(NamedTuple):
    """One section of a table, as written."""

    name: str
    raw: dict[str, Any]
    places: Places

    def problem(
        self, message: str, *path: str, hint: str | None = None, key: bool = False
    ) -> ScaffoldError:
        """Return an error about this section, at the place of the key `path`; with `key` at the key's name, not at its value."""
        place = self.places(path, key=key)
        return ScaffoldError(f"rule '{self.name}': {message}", place, hint)


def checked_table(text: str, path: str, base: Table | None = None) -> Table:
    """Return the table of a text, over the table `base`; raise `ScaffoldErrors` for all of its problems together."""
    data = parse_toml(text, path)
    places = Places(text, path)
    problems, entries = [], []
    for name, raw in data.items():
        entry = Entry(name, raw, places.below((name,)))
        if not isinstance(raw, dict):
            place = places((name,), key=True)
            hint = "a rule is a table: [exp]"
            problems.append(ScaffoldError(f"'{name}' is not a rule", place, hint))
        # The table is made of the sections without such problems; the others are only told.
        elif found := list(_bad_keys(entry)):
            problems += found
        else:
            entries.append(entry)
    heads = {item.name: _heads(item) for item in entries}
    composed = {item.name: tuple(item.raw.get("composed", ())) for item in entries}
    table = Table(Primitives(heads, data.__getitem__, composed), base)
    # Formulas may name any rule of the table, so all are known by now.
    for entry in entries:
        problems += _bad_rule(entry, table)
    raise_all(sorted(problems, key=lambda item: item.location or Location(path)))
    return table


def _heads(entry: Entry) -> tuple[str, ...]:
    """Return the spellings of a section: its `call`, and the other ones in `also`."""
    return (entry.raw["call"], *entry.raw.get("also", ()))


def _bad_keys(entry: Entry) -> Iterator[ScaffoldError]:
    """Yield a problem for each missing or unknown key of a section, and each value of the wrong type.

    The other checks assume that there are none.
    """
    for key, value in entry.raw.items():
        if key not in TYPES:
            hint = did_you_mean(key, TYPES) or f"keys: {', '.join(TYPES)}"
            yield entry.problem(f"unknown key '{key}'", key, hint=hint, key=True)
        elif not _has_type(key, value):
            yield entry.problem(f"'{key}' must be {TYPES[key]}", key)
    for key in ("call", "category", "samples"):
        if not entry.raw.get(key):
            yield entry.problem(f"'{key}' is missing", hint=EXAMPLES[key])
    category = entry.raw.get("category")
    if isinstance(category, str) and category not in CATEGORIES:
        hint = did_you_mean(category, CATEGORIES) or ", ".join(sorted(CATEGORIES))
        yield entry.problem(f"unknown category '{category}'", "category", hint=hint)


def _has_type(key: str, value: Any) -> bool:
    """Return whether the value of a key has the type the key, one of `TYPES`, needs."""
    if key == "complex":
        return isinstance(value, bool) or value == "only"
    if key in CHOICES:
        return value in CHOICES[key]
    if TYPES[key] is STRING:
        return isinstance(value, str)
    if TYPES[key] is STRINGS:
        return _are_strings(value)
    if key == "passes":
        return type(value) is int  # True is an int too, by `isinstance`
    if key == "spread":
        return _are_strings(value) and len(value) == 2
    if key == "power":
        return type(value) in (int, float)
    if TYPES[key] is WORDS:
        return isinstance(value, str) or bool(value) and _are_strings(value)
    if key == "grad":
        return isinstance(value, dict) and all(
            isinstance(item, str) or (item and _are_strings(item))
            for item in value.values()
        )
    if key in ("domain", "fused", "let", "tangent"):
        return isinstance(value, dict) and _are_strings(list(value.values()))
    return isinstance(value, bool)  # the other keys are a FLAG


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _bad_rule(entry: Entry, table: Table) -> Iterator[ScaffoldError]:
    """Yield the problems of a section with known keys of the right types: of its call, its gradients, samples and formulas."""
    heads = _heads(entry)
    # The first spelling is the `call`; the `also` ones may leave out its parameters.
    spelled = spelling(heads[0], heads[0], table.graph)
    if spelled is None:
        hint = "like 'torch.exp(x)', 'x.sum(dim=None)', 'x.mT' or 'x + y'"
        yield entry.problem(f"'{heads[0]}' is not a call", "call", hint=hint)
        return
    if "from" in entry.raw and (spelled.kind != "function" or "." in spelled.name):
        hint = "write the call without a module: call = 'f(x)'"
        yield entry.problem(
            "'from' is for a function that is called by its name alone",
            "from",
            hint=hint,
        )
    yield from _bad_call(entry, spelled, "call")
    names = {item.name for item in spelled.parameters}
    yield from _bad_also(entry, names, table)
    yield from _bad_names(entry, names)
    yield from _bad_results(entry, spelled)
    for wrong in wrong_facts(entry.raw, names):
        yield entry.problem(wrong.message, wrong.key, hint=wrong.hint)
    shape = entry.raw.get("shape", "unknown")
    if not is_shape(shape, names):
        hint = "a parameter, sizes: '(*x[:-1], n)', or a word of the table's header"
        yield entry.problem(f"'{shape}' is not a shape", "shape", hint=hint)
    yield from _bad_operands(entry, names)
    yield from _bad_gradients(entry)
    yield from _bad_samples(entry, table)
    yield from _bad_formulas(entry, table)
    yield from _bad_identities(entry, table)


def _bad_also(entry: Entry, names: set[str], table: Table) -> Iterator[ScaffoldError]:
    """Yield a problem for each text of `also` that is no spelling of a call, or has a parameter the call lacks."""
    for head in entry.raw.get("also", ()):
        spelled = spelling(head, entry.raw["call"], table.graph)
        if spelled is None:
            yield entry.problem(f"'{head}' is not a spelling", "also")
            continue
        yield from _bad_call(entry, spelled, "also")
        for item in spelled.parameters:
            if item.name not in names:
                yield _unknown_parameter(entry, item.name, names, "also")


def _bad_call(entry: Entry, spelled: Spelling, key: str) -> Iterator[ScaffoldError]:
    """Yield a problem if the rule is for a call no forward may use, as one reading numbers out of a tensor.

    `key` is the key with the call, for the place of the message.
    """
    said = None
    if spelled.kind in ("method", "attribute"):
        said = judged_value(spelled.name)
    # A function without a module is the team's own: it is not judged.
    elif spelled.kind == "function" and "." in spelled.name:
        said, _ = judged(full_name(spelled.name))
    if said is not None:
        yield entry.problem(said[0], key, hint=said[1])


def _bad_names(entry: Entry, names: set[str]) -> Iterator[ScaffoldError]:
    """Yield a problem for each name under `grad`, `optional` and the like that is no parameter of the call."""
    for key in ("grad", "domain", "fused", "tangent"):
        for name in entry.raw.get(key, {}):
            if name not in names:
                yield _unknown_parameter(entry, name, names, key, name)
    for key in ("optional", "changes", "differentiable"):
        for name in entry.raw.get(key, ()):
            if name not in names:
                yield _unknown_parameter(entry, name, names, key)
    for name in entry.raw.get("nondiff", ()):
        if name not in names:
            yield _unknown_parameter(entry, name, names, "nondiff")
        elif name in entry.raw.get("grad", {}):
            message = f"'{name}' has a gradient and is in nondiff"
            yield entry.problem(message, "nondiff")


def _bad_results(entry: Entry, spelled: Spelling) -> Iterator[ScaffoldError]:
    """Yield the problems of a tuple of any length, `results = ["*parts"]`.

    Its gradient puts parts back along a dim, by arguments as those of `chunk(x, count, dim)` and `unbind(x, dim)`.
    """
    results = entry.raw.get("results", ())
    if "value" in entry.raw or not any(name.startswith("*") for name in results):
        return
    if len(results) > 1:
        hint = "results = ['*parts']"
        yield entry.problem("a tuple must be the only result", "results", hint=hint)
    names = [item.name for item in spelled.parameters]
    if len(names) not in (2, 3) or names[-1] != "dim":
        hint = "if its arguments are others, write 'value' in place of 'results'"
        yield entry.problem(
            "a call with parts takes (x, count, dim) or (x, dim)", "results", hint=hint
        )


def _bad_operands(entry: Entry, names: set[str]) -> Iterator[ScaffoldError]:
    """Yield a problem for each text of `operands` that is not understood, or has other parameters than the first one."""
    taken = [operands(text) for text in entry.raw.get("operands", ())]
    for text, wanted in zip(entry.raw.get("operands", ()), taken, strict=True):
        if not wanted or wanted.keys() != taken[0].keys():
            hint = "like 'x[N, K], y[K, M]', in each string of the same parameters"
            yield entry.problem(f"'{text}' are not operands", "operands", hint=hint)
        for name in wanted.keys() - names:
            yield _unknown_parameter(entry, name, names, "operands")


def _unknown_parameter(
    entry: Entry, name: str, names: set[str], *path: str
) -> ScaffoldError:
    """Return the error for a `name` that is none of the call's parameters (`names`), at the key `path`."""
    hint = did_you_mean(name, names) or f"its parameters: {', '.join(sorted(names))}"
    return entry.problem(f"'{name}' is not a parameter", *path, hint=hint)


def _bad_gradients(entry: Entry) -> Iterator[ScaffoldError]:
    """Yield a problem unless a rule says its gradient in one way: by `grad`, by `code`, or by a `value` that has one.

    A rule of a category without gradient must state none.
    """
    formulas, category = "grad" in entry.raw, entry.raw["category"]
    if category in GRADIENTLESS and formulas:
        yield entry.problem(f"a rule of category {category} has no gradient", "grad")
    elif formulas and "value" in entry.raw:
        yield entry.problem("its value has a gradient, and so has it itself", "grad")
    elif ("value" in entry.raw) != ("differentiable" in entry.raw):
        hint = "value = 'x * sigmoid(x)' and differentiable = ['x']"
        yield entry.problem("'value' and 'differentiable' go together", hint=hint)
    elif category not in GRADIENTLESS and not entry.raw.keys() & SAYING_GRADIENTS:
        yield entry.problem("no gradient is given", hint="grad.x = '...'")


def _bad_samples(entry: Entry, table: Table) -> Iterator[ScaffoldError]:
    """Yield a problem for each sample or domain not understood, and each tensor with a gradient no sample gives."""
    rule = read_rule(entry.name, entry.raw, table.graph)
    names = frozenset(item.name for item in rule.parameters)
    drawn = set[str]()
    for text in rule.samples:
        sample = read_sample(text, rule.spelled, table.graph)
        if sample is None:
            hint = "like the arguments of the call: 'x[3, 4], dim=-1'"
            yield entry.problem(f"'{text}' is not a sample", "samples", hint=hint)
        else:
            drawn |= _drawn(sample)
    for name in {*rule.facts.differentiable} - drawn:
        yield entry.problem(f"no sample has a tensor for '{name}'", "samples")
    for name, domain in rule.domain.items():
        if read_domain(domain, names, table.graph) is None:
            message, hint = f"'{domain}' is not a domain", "like 'positive; not 1'"
            yield entry.problem(message, "domain", name, hint=hint)


def _drawn(sample: Sample) -> set[str]:
    """Return the parameters a sample gives tensors for: their gradients are checked by it."""
    return {
        name for name, value in sample.items() if isinstance(value, Drawn | Several)
    }


def _bad_formulas(entry: Entry, table: Table) -> Iterator[ScaffoldError]:
    """Yield a problem for each formula of a rule with a syntax error, an unknown name, or several statements.

    Only a `value` may have steps before its result.
    """
    rule = read_rule(entry.name, entry.raw, table.graph)
    others = table.scope(rule._replace(let={})) | {"tangent"} | ROOTS | BUILTINS
    for name in rule.let.keys() & {*others, *kwlist}:
        yield entry.problem(f"'{name}' has a meaning already", "let", name)
    for text, path, names in _formulas(entry, rule, table):
        place = entry.places(path)
        try:
            formula = parse(Text(text, place), Scope(names), table.graph)
        except ScaffoldError as error:
            yield from error.problems
            continue
        steps = path == ("value",) and _are_steps(formula.statements)
        if formula.result is None or formula.statements and not steps:
            yield entry.problem("a formula is one expression", *path)
            continue
        # `parts` stand in a forward, so they call torch by its own names.
        for expression in formula.expressions() if path != ("parts",) else ():
            yield from _bad_callees(entry, expression, table, path)


def _formulas(
    entry: Entry, rule: Rule, table: Table
) -> Iterator[tuple[str, tuple[str, ...], frozenset[str]]]:
    """Yield each formula of a rule, with its key and the names it may read.

    A name of `let` is known below it, and in the formulas of gradients.
    """
    plain = known = table.scope(rule._replace(let={}))
    for name, text in rule.let.items():
        yield text, ("let", name), known
        known |= {name}
    for name, several in rule.formulas.items():
        yield from ((text, ("grad", name), known) for text in several)
    for name, text in rule.fused.items():
        yield text, ("fused", name), known
    for name, text in rule.tangents.items():
        yield text, ("tangent", name), known | {"tangent"}
    for text in entry.raw.get("composed", ()):
        yield text, ("composed",), plain
    for key in ("when", "value", "parts"):
        if key in entry.raw:
            yield entry.raw[key], (key,), plain


def _are_steps(statements: Iterable[Statement]) -> bool:
    """Return whether each statement assigns a value to a name, as the steps of a `value` must."""
    return all(
        isinstance(item, Assign) and item.target.kind == "name" and not item.operator
        for item in statements
    )


def _bad_identities(entry: Entry, table: Table) -> Iterator[ScaffoldError]:
    """Yield a problem for each wrong line of `simpler`, an identity as `-(-x) -> x`."""
    for text in entry.raw.get("simpler", ()):
        wrong = wrong_identity(text, table.op_of(entry.name), table)
        if wrong:
            hint = "simpler = ['-(-x) -> x']"
            yield entry.problem(f"'{text}' {wrong}", "simpler", hint=hint)


def _bad_callees(
    entry: Entry, formula: Node, table: Table, path: tuple[str, ...]
) -> Iterator[ScaffoldError]:
    """Yield a problem for each call of an unknown function, or with too many arguments, in a formula at the key `path`."""
    for node in formula.walk():
        if node.kind != "call":
            continue
        callee, *args = node.args
        if callee.kind == "attribute" and callee.args[0].label in ROOTS - {"math"}:
            hint = "use a primitive of the table by its name, or add it"
            yield entry.problem("a call of torch in a formula", *path, hint=hint)
            continue
        name = callee.label
        # `math.sqrt(n)`, `len(sizes)`
        if callee.kind == "attribute" or (name in BUILTINS and name not in table):
            continue
        if name in BUILDERS:
            known = len(BUILDERS[name].parameters)
            if path == ("value",) and not BUILDERS[name].in_values:
                hint = "use primitives: expand(x, shape(y)), reshape(x, sizes)"
                yield entry.problem(f"{name} has no gradient", *path, hint=hint)
        elif name in table:
            parameters = table.rule(name).parameters
            # `*tensors` takes any number of arguments.
            starred = any(item.starred for item in parameters)
            known = len(args) if starred else len(parameters)
        else:
            yield entry.problem(f"'{name}' is not a primitive", *path)
            continue
        if len(args) > known:
            yield entry.problem(f"{name} takes {known} arguments", *path)
