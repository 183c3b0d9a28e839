"""Name the values of the backward by the role they play: `grad_scores`, `x_hat`, `mask`, as an author would.

`statements` asks for names of the values that get a line, and of forward values to be saved.

In: an op. Out: an identifier; the words for a primitive's value are in its section of the table. Invariant: no name is used twice,
and none is a builtin's or a keyword's. An expression repeated in the finished statements is named in `common_subexpressions`.

Words: a stem is a possible name, numbered if it is taken; a role is a word for what a value is in its formula (`normalized`,
`mask`). `held` maps the forward's values with a name to it; `of` maps a cotangent to its forward value, `via` one reader's part of
a cotangent to that value and the reader. The owners of an op are the inputs whose gradients read it. A gradient is a value computed
from a cotangent; all others are forward values. A word of the table with `{}` in it takes an operand's name (`{}_over_{}`).
Names `taken` are not free; `given` are those chosen here for forward values. A value's exact name is its own, or that of the tensor it is
a view or a part of, `x_odd`; an exact stem says more than a role.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property

from scaffold.derive.forward.body import part_name
from scaffold.derive.graph.op import Op, is_number, literal
from scaffold.derive.name_collisions import RESERVED
from scaffold.derive.simplify.forward_products import is_scaled
from scaffold.derive.simplify.rewrites import is_one_hot
from scaffold.formula.names import numbered

# Words for the engine's own ops without a cotangent in them, best first. A primitive
# has its words in the table.
VALUE: dict[str, tuple[str, ...]] = {
    "lead_dims": ("leading",),
    "unless_vector": ("matrix",),
    "unless_scalar": ("restored",),
    "contracted": ("product",),
    "slice": ("part",),
    "index": ("picked",),
    "summed_to": ("summed",),
    "fitted_to": ("summed",),
    "cond": ("chosen",),
    "item": ("value",),
}

# Words for ops with a cotangent in them that are not a forward value's cotangent.
GRADIENT: dict[str, tuple[str, ...]] = {
    "contracted": ("projected_grad",),
    "unless_vector": ("grad_matrix", "matrix_grad"),
    "unless_scalar": ("restored_grad",),
    "summed_to": ("summed_grad",),
    "fitted_to": ("summed_grad",),
    "cond": ("chosen_grad",),
    "unsliced": ("padded_grad",),
}

EVERY_SECOND = {None: "even", 0: "even", 1: "odd"}
# Users' names to name other values after: `log_p` is the logarithm of `p`, `w_q` makes
# `q`. Of a logarithm, group 1 stands before "log", 2 is a logsumexp.
OF_LOGARITHMS = re.compile(r"(\w+?)?_?log(?!it)(?:(sumexp\w*)|\w*)")
LOGARITHM = re.compile(  # not `neg_log_p` or `sum_log_p`
    r"(?P<before>(?!neg|minus|sum|mean|total|max)[a-z]\w*_)?"
    r"(?:logit_|log_|log(?!it))(?P<of>[a-z]\w*)"
)
# `w_q`, `weight_q`; `Wq`; `q_proj`, `q_weight`: the group is what such a layer makes.
WEIGHT = re.compile(
    r"(?:w|W|weight)_([a-z]\w*)|[wW]([qkvo])|([a-z]\w*?)_(?:proj|w|weight)"
)
MASK, WEIGHTS = re.compile(r"(?:\w+_)?mask"), re.compile(r"w|(?:\w+_)?weights?")
# Longest names allowed: for one made of several names, `x_cos`; of a word for the
# operation, `scaled_x`; of a role and operands, `mask_scores`, since a number is
# shorter.
OF_SEVERAL, OF_WORD, OF_ROLE = 18, 24, 30

# Ops that read at most the shape and the dtype of a cotangent: their value is no
# gradient.
APART = frozenset({"zeros", "shape", "dtype", "size"})


class Namer:
    """A source of free names for ops; each name given is reserved."""

    def __init__(
        self,
        taken: set[str],
        held: Mapping[Op, str],
        of: Mapping[Op, Op],
        via: Mapping[Op, tuple[Op, Op]],
        users: Mapping[Op, list[Op]],
        owners: Mapping[Op, list[str]],
        denominators: Collection[Op],
    ) -> None:
        """Begin with the names `taken`; the other arguments are facts about ops, by which they are named.

        `users` has the forward ops that read a forward op, `owners` the inputs whose gradients read an op, `denominators` the ops that
        something is divided by.
        """
        self.taken, self.held = taken, held
        self.of, self.via = of, via
        self.sides = _sides(of)
        self.denominators = denominators
        self.users, self.owners = users, owners
        self.forward = frozenset((*users, *of.values()))
        # An op whose negative is a cotangent -> the forward value of that cotangent.
        self.negated = {g.args[0]: op for g, op in of.items() if _is_negative(g)}
        # How many gradients there are.
        self.count = len({name for names in owners.values() for name in names})
        self.known: dict[Op, bool] = {}  # is it a gradient?
        self.roles: dict[Op, list[str]] = {}
        # By the op and its forward value if it is a cotangent; `exact` names say more
        # than a role.
        self.stems: dict[tuple[Op, Op | None], tuple[str, ...]] = {}
        self.exact: dict[tuple[Op, Op | None], tuple[str, ...]] = {}
        self.words: dict[Op, str] = {}
        self.alike: dict[Op, str] = {}  # names of values that play the same role
        self.given: dict[Op, str] = {}  # names given in here to forward values
        self.all_named = set[Op]()  # all ops that get a name
        # A name -> the preferred one, had it been free.
        self.preferred: dict[str, str] = {}

    def afresh(self, taken: Iterable[str]) -> "Namer":
        """Return a namer with these names taken and none given, for another attempt at the statements; it shares the facts about ops."""
        other = copy(self)
        other.taken, other.alike, other.given = {*taken}, {}, {}
        other.all_named, other.preferred = set(), {}
        return other

    def name_all(self, ops: Collection[Op]) -> dict[Op, str]:
        """Return names for several ops, and reserve them: forward values first, since their cotangents are named after them."""
        self.all_named |= {*ops}
        for gradients in (False, True):
            several = [op for op in ops if self.is_gradient(op) is gradients]
            self.tell_apart(several)
            found = {op: self.name(op) for op in several}
            self.given |= found
        return {op: self.given[op] for op in ops}

    def tell_apart(self, ops: Iterable[Op]) -> None:
        """Note names in `alike` for ops that would get the same one: `x_norm` and `w_norm`, not `norm` and `w_norm`."""
        groups: dict[str, list[Op]] = {}
        several = list(ops)
        self.all_named |= {*several}
        for op in several:
            stem = next(filter(self._is_free, self._stems(op)), "")
            groups.setdefault(stem, []).append(op)
        for stem, alike in groups.items():
            if len(alike) == 1:
                continue
            names = {op: list(self._more_exact(op)) for op in alike}
            # Gradients that are alike are parts of one cotangent: its name, used twice,
            # reads better than `grad_x_via_product`.
            if _are_alike(names.values()) and not self.is_gradient(alike[0]):
                # `diff_pos` and `diff_neg` for `x - pos` and `x - neg`, not `diff` and `diff_x`.
                counts = Counter(name for exact in names.values() for name in exact)
                names = {
                    op: [name for name in exact if counts[name] == 1]
                    for op, exact in names.items()
                }
            if _are_alike(names.values()):  # nothing tells them apart but a number
                continue
            for op, exact in names.items():
                if (self._value(op) or self.negated.get(op)) in self.held:
                    continue  # named after the user's name for its value
                chosen = {*self.alike.values()}
                self.alike[op] = next((n for n in exact if n not in chosen), stem)

    def _more_exact(self, op: Op) -> Iterator[str]:
        """Return the free names of an op that say more than its role, to tell it from others: `x_norm`, not `norm`."""
        value = self._value(op)
        key = (op, value)
        if key not in self.exact:
            self.exact[key] = tuple(self._beyond_roles(op, value))
        return filter(self._is_free, self.exact[key])

    def _beyond_roles(self, op: Op, value: Op | None) -> Iterator[str]:
        """Yield the possible names of an op that say more than its role: not `mask` or `grad_mask`, but `grad_mask_via_y`.

        A bare role suits several ops alike. `value` is the forward value of a cotangent, whose name and roles do not count either.
        """
        value = value or self.negated.get(op)
        roles = {*self._roles(op)}
        if value is not None:
            roles |= {self.held.get(value, ""), *self._forward_roles(value)}
        for name in self._stems(op):
            # `mask` of `grad_mask`; any other name as it is.
            role = name.rpartition("grad_")[2]
            if name not in roles and role not in roles:
                yield name

    def name(self, op: Op) -> str:
        """Return a name for the op's value, and reserve it; one that tells it from others like it (`alike`) goes first.

        `preferred` notes the best stem of a value that got another name: `composition` takes it where it is free.
        """
        stems = self._stems(op)
        distinct = (self.alike[op],) if op in self.alike else ()
        possible = (*distinct, *stems)
        chosen = next(filter(self._is_free, possible), possible[0])
        name = self.another(chosen)
        if name != stems[0]:
            self.preferred[name] = stems[0]
        return name

    def another(self, stem: str) -> str:
        """Return the stem if it is free, else with a number, `mask2`; reserve it."""
        chosen = stem if self._is_free(stem) else numbered(stem, self.taken)
        self.taken.add(chosen)
        return chosen

    def _is_free(self, name: str) -> bool:
        return name not in self.taken and name not in RESERVED

    def _stems(self, op: Op) -> tuple[str, ...]:
        """Return the possible names of an op, best first; for the cotangent of a named value that is `grad_<its name>`.

        A name after another forward value with a name, `grad_scores`, would mislead and is left out.
        """
        value = self._value(op)  # changes as choices get names
        key = (op, value)
        if key not in self.stems:
            self.stems[key] = tuple(self._possible(op, value))
        # Of the negative of a cotangent: `neg_grad_x`.
        value, sign = (value, "") if value else (self.negated.get(op), "neg_")
        if value is None or value in self.held or not self.is_gradient(op):
            return self.stems[key]
        of_others = {
            f"{sign}grad_{name}"
            for other, name in self.given.items()
            # A view of the same tensor is no other value: their gradients may share a name.
            if _viewed(other) is not _viewed(value)
        }
        stems = [stem for stem in self.stems[key] if stem not in of_others]
        # After its forward value, or the named multiple of that: `grad_scores`.
        named = self.given.get(value) or (self._multiple(value) if not sign else "")
        first = (f"{sign}grad_{named}",) if named else ()
        return (*first, *stems) or self.stems[key]

    def _multiple(self, value: Op) -> str:
        """Return the name of a multiple of the value, if nothing else reads the value; else "".

        `scores`, for `x @ query` in `scores = x @ query / t`. Not if the multiple's cotangent gets a name, as it will be
        `grad_scores`.
        """
        while (user := self._sole_user(value)) and _is_multiple(user, value):
            value = user
            if name := self.held.get(value) or self.given.get(value):
                named = (self._value(op) for op in self.all_named)
                return "" if value in named else name
        return ""

    def _sole_user(self, value: Op) -> Op | None:
        """Return the only reader of a value among the forward ops, after which it may be named; None if it has several, or none."""
        users = {*self.users.get(value, ())}
        return users.pop() if len(users) == 1 else None

    def _possible(self, op: Op, value: Op | None) -> Iterator[str]:
        """Yield possible names of a value in the backward, best first: after its forward value (`value`), its reader, its role."""
        # A result of autograd of one call: the gradient of an argument.
        if op.rule == "item" and op.args[0].rule == "vjp":
            word = self._word(op.args[0].pullback.args[op.position])
            yield f"pulled_{word or 'back'}"
            return
        if value is not None:
            yield from self._of_forward(value)
        elif op in self.negated:  # its negative is a cotangent
            found = self._of_forward(self.negated[op])
            yield from (f"neg_{name}" for name in found)
        if op in self.via:
            yield from self._contributions(*self.via[op])
        roles = self._roles(op)
        yield roles[0]
        if self.is_gradient(op):
            yield from self._by_owner(op, roles)
        else:
            yield from self._by_operands(op, roles)

    def _by_owner(self, op: Op, roles: Sequence[str]) -> Iterator[str]:
        """Yield names for a part of a gradient by the input it is for, `masked_grad_x`: not by its operands, whose gradient it is not."""
        factors = [arg for arg in op.args if not self.is_gradient(arg)]
        names = list(filter(None, map(self._exact, factors)))
        filled = (
            word.format(name)
            for word in _of_names(op.facts.grad_words)
            for name in names
        )
        yield from (name for name in filled if len(name) <= OF_WORD)
        # The input of the only gradient would tell nothing apart.
        owners = self.owners.get(op, []) if self.count > 1 else []
        if len(owners) == 1:
            yield from (f"{role}_{owners[0]}" for role in roles)
        yield from roles

    def _by_operands(self, op: Op, roles: Sequence[str]) -> Iterator[str]:
        """Yield names for a forward value: its roles, then roles with operands, `exp_x` or `x_norm`, in case the role alone is taken."""
        if _which_part(op) is not None and (name := self._exact(op)):
            yield name
        if (both := self._of_both(op)) is not None:
            yield both
        yield from roles
        operands = list(dict.fromkeys(filter(None, map(self._word, op.args))))
        is_reduction = op.facts.category == "reduction"
        for operand in (*operands, "_".join(operands)):  # each alone, then all of them
            # `x_norm` of a reduction, `exp_x` of any other function.
            pairs = [
                (operand, role) if is_reduction else (role, operand)
                for role in roles
                if operand
            ]
            joined = (f"{one}_{two}" for one, two in pairs if not _repeats(one, two))
            yield from (name for name in joined if len(name) <= OF_ROLE)
        if is_reduction and len(operands) == 1:  # in case the user has an `x_norm`
            yield from (f"{role}_{operands[0]}" for role in roles)

    def _of_both(self, op: Op) -> str | None:
        """Return a name made of both operands' names, by the table's word: `x_cos` for `x * cos`.

        None if one has no name, if both have the same, or if the name gets too long.
        """
        for word in _of_names(op.facts.words):
            names = [self._exact(arg) for arg in op.args]
            found = word.format(*names)
            if all(names) and len({*names}) > 1 and len(found) <= OF_SEVERAL:
                return found
        return None

    def _exact(self, op: Op) -> str:
        """Return the name of a value, of the value it is a view of, or of the value with its index: `x_odd` for `x[1::2]`; else ""."""
        if op.kind == "static":
            return ""
        if op in self.held:
            return self.held[op]
        if op.rule == "input":
            return op.name
        # A view has the name of what it is a view of.
        if op.facts.inline == "always":
            return self._exact(op.args[0])
        base = self._exact(op.args[0]) if op.args else ""
        part = _which_part(op) if base else None
        if part is None:
            return ""
        # `x0` for a position, `x_odd` for a word.
        return f"{base}{part}" if type(part) is int else f"{base}_{part}"

    def _value(self, op: Op) -> Op | None:
        """Return the forward value of a cotangent, else None.

        A side of a choice that gets no name itself is named like the choice, so it has the forward value of that.
        """
        if op in self.of:
            return self.of[op]
        choice = self.sides.get(op)
        if choice is None or choice in self.all_named:
            return None
        return self._value(choice)

    def _contributions(self, value: Op, reader: Op) -> Iterator[str]:
        """Yield names for the part of the cotangent of `value` that comes from one `reader`: `grad_x_via_xz`, from `xz = x * z`."""
        name = self.held.get(value) or (value.name if value.rule == "input" else "")
        if not name:
            return
        roles = [self.held[reader]] if reader in self.held else self._roles(reader)
        # Not `grad_x_via_scaled_x`, and not `grad_x_via_x_norm`.
        telling = (role for role in roles if name not in (role, role.partition("_")[2]))
        telling = (role for role in telling if not role.startswith(f"{name}_"))
        yield from (part_name(name, role) for role in telling)

    def _of_forward(self, value: Op) -> Iterator[str]:
        """Yield names for the cotangent of a forward value: `grad_scores`, by its name, else by its roles."""
        if value in self.held:
            yield f"grad_{self.held[value]}"
            yield f"total_grad_{self.held[value]}"
            return
        roles = self._forward_roles(value)
        # Of a part, `grad_x_odd` (below) says more than `grad_part`.
        if _which_part(value) is None:
            yield f"grad_{roles[0]}"
        yield from (f"grad_{stem}" for stem in self._by_operands(value, roles))

    def _forward_roles(self, value: Op) -> list[str]:
        """Return a value's roles as an argument of its readers and its own; those of a function's result first.

        `preactivation` for a product below a `tanh`, but `softplus` for the argument in `tanh(softplus(x))`.
        """
        as_argument, own = [*dict.fromkeys(self._as_argument(value))], self._roles(
            value
        )
        is_function = value.facts.category == "elementwise" and not value.facts.operator
        return [*own, *as_argument] if is_function else [*as_argument, *own]

    def _as_argument(self, value: Op) -> Iterator[str]:
        """Yield a value's roles as an argument of its readers, as the table says: `preactivation` below a `tanh`."""
        for user in self.users.get(value, ()):
            if user.facts.argument and user.args[0] is value:
                yield user.facts.argument

    def _roles(self, op: Op) -> list[str]:
        """Return words for a value, best first: a cast in the forward has those of its argument, one of the engine's adds `_cast`."""
        if op not in self.roles:
            if _is_cast_if_given(op):
                self.roles[op] = self._roles(op.args[0])
            elif op.rule == "cast":
                self.roles[op] = self._cast_of(op.args[0])
            # The facts of a cast, `x.float()`: it may return its argument, and says its own dtype.
            elif op.facts.memory == "same" and op.facts.dtype != "promoted":
                self.roles[op] = self._roles(op.args[0])
            else:
                self.roles[op] = self._roles_played(op)
        return self.roles[op]

    def _roles_played(self, op: Op) -> list[str]:
        """Find words for a value by its operation, operands and readers: `masked_grad`, `x_hat`, `normalized`."""
        if (fixed := _fixed_roles(op)) is not None:
            return fixed
        if self.is_gradient(op):
            summed = op.facts.category == "reduction" and bool(op.facts.grad_words)
            # A sum or a mean over `g * x` is an inner product; over a `scaled_grad` it is none to the reader.
            if summed and self._is_unnamed_product(op.args[0]):
                return ["inner", *_roles_of(op.facts.grad_words)]
            masked = op.rule == "where" and any(is_number(arg, 0) for arg in op.args)
            found = ("masked_grad",) if masked else ()
            words = _roles_of(op.facts.grad_words) or GRADIENT.get(op.rule)
            return [*found, *(words or (f"{_rule_word(op)}_grad",))]
        if (normalized := self._normalized(op)) is not None:
            if normalized.facts.operator == "-":  # `x - mean`
                normalized = normalized.args[0]
            return [*self._with_name("{}_hat", normalized), "normalized"]
        if (spread := spread_role(op)) is not None:
            return [spread]
        if (part := self._part_played(op)) is not None:
            return [part]
        if op.facts.operator == "-" and is_number(op.args[0], 1):
            return [*self._with_name("one_minus_{}", op.args[1]), "complement"]
        if op.facts.operator == "**" and is_number(op.args[1], 2):
            return [*self._with_name("{}_sq", op.args[0]), "squared"]
        if op.rule == "sum" and _is_product_of_two(op.args[0]):
            return ["dot"]
        # A function's result, as `exp`, or a ratio has a word of its own that says more.
        if op in self.denominators and op.facts.operator not in ("", "/"):
            return ["denom"]
        if op.rule == "cond":
            body, orelse = op.args
            if body.args and body.args == orelse.args:  # one call by either rule
                return self._roles(body)
            return [*self._as_argument(op), *VALUE[op.rule]]
        # `var_unbiased`, the rule of `torch.var(x, unbiased=True)`, is a `var` to the reader.
        word = _function(op) or _rule_word(op).removesuffix("_unbiased")
        words = _roles_of(op.facts.words) or VALUE.get(op.rule, (word,))
        return [*self._by_argument(op), *self._in_sum(op), *words]

    def _cast_of(self, op: Op) -> list[str]:
        """Return names for a cast value: its name and roles with `_cast` behind."""
        return [f"{name}_cast" for name in (self._exact(op), *self._roles(op)) if name]

    def _by_argument(self, op: Op) -> Iterator[str]:
        """Yield words by an operand's name: `var` for `exp(logvar)`, `gate` for `F.linear(x, w_gate)`, `scaled_x` for `a * x`.

        An operand with no name of its own but a role gives none.
        """
        if op.facts.argument == "exponent":
            yield from self._without_log(op.args[0])
        elif _is_layer(op) and (found := WEIGHT.fullmatch(self._exact(op.args[1]))):
            yield found[found.lastindex or 0]  # the only group that matched
        elif op.facts.operator == "*":
            # Each factor with a name of its own, by the other one.
            named = [
                (value, name, by)
                for value, by in (op.args[::-1], op.args)
                if (name := self._exact(value)) and name not in self._roles(value)
            ]
            # By what the other factor is, by both names, at last by a scalar.
            for _, name, by in named:
                yield from self._as_scaled(by, name)
            if both := self._of_both(op):
                yield both
            for value, _, by in named:
                if by.shape.rank == 0:
                    yield from self._with_name("scaled_{}", value, OF_WORD)
        elif op.facts.operator == "+":
            if is_number(op.args[0], 1):
                yield from self._with_name("one_plus_{}", op.args[1])
            elif all(arg.is_tensor for arg in op.args) and (both := self._of_both(op)):
                yield both

    def _as_scaled(self, by: Op, name: str) -> Iterator[str]:
        """Yield a word for a product of a value called `name`, by its other factor `by`: `scaled_x`, `masked_x`, `weighted_x`."""
        # `new_x` is a local that was renamed since an input is called `x`.
        stem, factor = name.removeprefix("new_"), self._exact(by)
        if not by.is_tensor:
            word = "scaled"
        elif by.kind == "bool" or MASK.fullmatch(factor):
            word = "masked"
        elif WEIGHTS.fullmatch(factor):
            word = "weighted"
        else:
            return
        found = f"{word}_{stem}"
        # Not `scaled_scaled_x`.
        if not stem.startswith(word) and len(found) <= OF_WORD:
            yield found

    def _in_sum(self, op: Op) -> Iterator[str]:
        """Yield "term" for a product of the backward alone, if it is only added to others."""
        readers = self._readers.get(op, ())
        if op in self.forward or not self.forward.isdisjoint(readers):
            return
        by = {user.facts.operator for user in readers}
        if op.facts.operator == "*" and by and by <= {"+", "-"}:
            yield "term"

    @cached_property
    def _readers(self) -> dict[Op, list[Op]]:
        """Map each op to its readers among the backward's ops; made once, when it is asked for."""
        found: dict[Op, list[Op]] = {}
        for user in self.owners:
            for arg in user.args:
                found.setdefault(arg, []).append(user)
        return found

    def _without_log(self, op: Op) -> Iterator[str]:
        """Yield a word for the exponential of `op`, a logarithm by its name: `var` of `logvar`, `inv_var` of `-logvar`.

        Of a difference, `logps - ref_logps`, it is a `ratio`.
        """
        if op.facts.operator == "-" and len(op.args) == 2:
            one, two = (OF_LOGARITHMS.fullmatch(self._exact(arg)) for arg in op.args)
            # `logits - logsumexp`, the latter by its name or its primitive.
            if (two and two[2]) or _is_of_logits(_viewed(op.args[1])):
                yield "probs"
            elif one and two:
                yield "ratio"
                if one[1]:  # `policy_ratio`, of `policy_logps - ref_logps`
                    yield f"{one[1]}_ratio"
            return
        inverse = "inv_" if _is_negative(op) else ""
        found = LOGARITHM.fullmatch(self._exact(op.args[0] if inverse else op))
        if found:
            yield f"{inverse}{found['before'] or ''}{found['of']}"

    def _with_name(self, word: str, op: Op, most: int = OF_SEVERAL) -> tuple[str, ...]:
        """Return the word filled with a value's name, `x_hat` for "{}_hat"; () if that has none or gets too long."""
        name = self._exact(op).removeprefix("new_")
        found = word.format(name)
        return (found,) if name and len(found) <= most else ()

    def is_gradient(self, op: Op) -> bool:
        """Return whether a value is computed from a cotangent; its shape or dtype alone does not count."""
        if op not in self.known:
            # A cast reads another value's dtype only.
            args = op.args[:1] if op.rule == "cast" else op.args
            self.known[op] = op.rule == "cotangent" or (
                op.rule not in APART
                and "creates" not in op.facts.flags
                and any(map(self.is_gradient, args))
            )
        return self.known[op]

    def _is_unnamed_product(self, op: Op) -> bool:
        read_once = len(self._readers.get(op, ())) < 2
        return op.facts.operator == "*" and op not in self.of and read_once

    def _normalized(self, op: Op) -> Op | None:
        """Return the value divided by a root or a norm: `x` of `x / x.norm()` or `x * var.rsqrt()`, for the role `x_hat`; else None."""
        if op.facts.operator == "*":
            # `rsqrt`: the power -1/2. It must be of a smaller shape: `x * x.rsqrt()` is no norm.
            roots = [arg for arg in op.args if arg.facts.power == -0.5]
            rest = [arg for arg in op.args if arg not in roots]
            return rest[0] if is_scaled(op) and roots and rest else None
        # A root or a norm over another one is a ratio, `std_x / std_y`.
        if op.facts.operator != "/" or "scale" in op.args[0].facts.flags:
            return None
        below = op.args[1]
        if "limited" in below.facts.flags:  # clamped against division by zero
            below = below.args[0]
        return op.args[0] if "scale" in below.facts.flags else None

    def _part_played(self, op: Op) -> str | None:
        """Return a word for an arithmetic result by its reader: `hidden` between two layers, `num` of a quotient; None if unknown."""
        if op.facts.operator not in ("*", "+", "@"):
            return None
        if op.facts.operator == "*":
            # `xhat * weight`
            if any(map(self._normalized, op.args)):
                return "normed"
            if any(_is_activation_of(*pair) for pair in (op.args, op.args[::-1])):
                return "activated"
        user = self._sole_user(op)
        # A denominator or a weight, the second operand, plays another part.
        if user is None or user.args[0] is not op:
            return None
        if user.facts.operator == "/" and user.args[1].is_tensor:
            # Over a scalar it is no numerator: the quotient is a multiple of it (`_multiple`).
            return None if user.args[1].shape.rank == 0 else "num"
        layers = _is_layer(user) and any(map(_is_layer, op.walk()))
        return "hidden" if layers and all(item.is_tensor for item in op.args) else None

    def _word(self, op: Op) -> str:
        """Return a user's name to form a name with: of a value, else of its first operand with one; else ""."""
        if op.kind == "static" or op.rule == "cotangent":
            return ""
        if op in self.held:
            return self.held[op]
        if op.rule == "input":
            return op.name
        # Cached: a gradient accumulated step by step is read twice in each, and there
        # may be many.
        if op not in self.words:
            self.words[op] = next(filter(None, map(self._word, op.args)), "")
        return self.words[op]


def _are_alike(several: Iterable[Sequence[str]]) -> bool:
    """Return whether all ops would get the same name; `several` has the possible names of each, the best first."""
    return len({name for names in several for name in names[:1]}) < 2


def _repeats(one: str, two: str) -> bool:
    """Return whether the last word of one name is the first of the other, so they are not joined: `projected` and `projected_x`."""
    return one.rpartition("_")[2] == two.partition("_")[0]


def _of_names(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a primitive with places for operands' names: `{}_over_{}`."""
    return tuple(word for word in words if "{" in word)


def _roles_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without places for names: they are roles."""
    return tuple(word for word in words if "{" not in word)


def spread_role(op: Op) -> str | None:
    """Return `std` for the root of a variance, `rms` for that of a mean square, with an epsilon added or not; else None."""
    if not op.facts.spread:
        return None
    of_variance, of_mean_square = op.facts.spread
    below = op.args[0]
    if below.facts.operator == "+" and not below.args[1].is_tensor:
        below = below.args[0]
    # One of two results: `torch.var_mean(x)`.
    if below.rule == "item":
        below = below.args[0]
    if below.rule.startswith("var"):
        return of_variance
    base = _squared(below.args[0]) if below.rule == "mean" else None
    if base is None:
        return None
    # The mean of `(x - mean)**2` is a variance.
    return of_variance if base.facts.operator == "-" else of_mean_square


def _is_product_of_two(op: Op) -> bool:
    """Return whether an op is a product of two different tensors, `x * y`: its sum is a dot product."""
    tensors = {arg for arg in op.args if arg.is_tensor}
    return op.facts.operator == "*" and len(tensors) == 2


def _is_of_logits(op: Op) -> bool:
    """Return whether an op is the logarithm of a sum of exponentials, so a difference with it is a logarithm of probabilities."""
    return op.facts.category == "reduction" and op.facts.argument == "logits"


def _squared(op: Op) -> Op | None:
    """Return `x` for `x * x`, `x**2` and `x.square()`; None for others. A mean of it is a mean square."""
    twice = op.facts.operator == "*" and op.args[0] is op.args[1]
    square = op.facts.operator == "**" and is_number(op.args[1], 2)
    return op.args[0] if twice or square or op.facts.power == 2 else None


def _viewed(op: Op) -> Op:
    """Return the tensor a view is of, `x` for `x.mT`; other values as they are."""
    while op.facts.is_view or op.rule == "reshaped":
        op = op.args[0]
    return op


def _is_activation_of(op: Op, value: Op) -> bool:
    """Return whether `op` is an elementwise activation of `value`, such as `sigmoid(x)`: times `value` it is called activated."""
    return op.facts.argument == "preactivation" and op.args[0] is value


def _is_layer(op: Op) -> bool:
    """Return whether an op is a layer: a matrix product of a value with an input, its weight."""
    if op.facts.category != "contraction" or len(op.args) < 2:
        return False
    return _viewed(op.args[1]).rule == "input"


def _is_multiple(op: Op, value: Op) -> bool:
    """Return whether an op is `value`, an arithmetic result, times or over one number or scalar: it shares the name of that."""
    # The result of a function has a word of its own, `exp`.
    if not value.facts.operator or op.facts.operator not in ("*", "/"):
        return False
    first, second = op.args
    # `2 / x` is no multiple of `x`.
    if first is not value and op.facts.operator == "/":
        return False
    by = second if first is value else first
    return not by.is_tensor or by.shape.rank == 0


def _is_cast_if_given(op: Op) -> bool:
    """Return whether an op is the cast of an optional value, or None if that is absent: it has the value's role."""
    return (
        op.rule == "cond" and op.args[0].rule == "cast" and literal(op.args[1]) is None
    )


def _is_negative(op: Op) -> bool:
    return op.facts.operator == "-" and len(op.args) == 1


def _fixed_roles(op: Op) -> list[str] | None:
    """Return the roles of an op whatever its operands: a mask, a one-hot, a result named by its primitive; None for others."""
    # A comparison: no gradient passes it.
    if op.kind == "bool" and op.facts.category == "constant":
        return ["mask", "condition"]
    # A sole name, "*parts", is for any number of results.
    if op.rule == "item" and len(results := op.args[0].facts.results) > 1:
        return [results[op.position]]
    return ["onehot"] if is_one_hot(op) else None


def _which_part(op: Op) -> int | str | None:
    """Return a word for the part of a tensor an op is: 0 for `x[..., 0]`, "odd" for `x[1::2]`; None if there is none."""
    # A `select`: a view with one dim less.
    if op.facts.rearranges and op.facts.shape == "reduced":  # at one index
        index = literal(op.args[2])
        if index == -1:
            return "last"
        return index if type(index) is int and index >= 0 else None
    if op.rule == "slice":
        start, end, step = map(literal, op.args[2:])
        if step == 2 and end is None and (start is None or type(start) is int):
            return EVERY_SECOND.get(start)
    return None


def _rule_word(op: Op) -> str:
    """Return the name of a primitive as a word: `mt` for `mT`, and `exp` for `exp_`, a team's own rule for an `exp` (`Table.op_of`)."""
    return op.rule.lower().rstrip("_")


def _function(op: Op) -> str:
    """Return the name of the function an op calls, if the table does not know it: "arange"; "" for other ops."""
    if op.rule != "call" or op.template.node.kind != "call":
        return ""
    label = op.template.node.args[0].label.lower()
    return label if label.isidentifier() else ""


def _sides(of: Mapping[Op, Op]) -> dict[Op, Op]:
    """Map each side of a choice to it, if the choice is a cotangent: the side is named after the choice's forward value.

    A side that is a choice itself has its sides mapped too.
    """
    found: dict[Op, Op] = {}
    waiting = [g for g in of if g.rule == "cond"]
    while waiting:
        choice = waiting.pop()
        for side in choice.args:
            if side not in of and side not in found:
                found[side] = choice
                waiting += [side] if side.rule == "cond" else []
    return found


def users_of(of: Mapping[Op, Op]) -> dict[Op, list[Op]]:
    """Map each forward op to its readers among the forward ops: they give it a role. `of` has all that have a cotangent."""
    found: dict[Op, list[Op]] = {}
    for user in of.values():
        for arg in user.args:
            found.setdefault(arg, []).append(user)
    return found


def denominators_of(ops: Iterable[Op]) -> frozenset[Op]:
    """Return the ops that something is divided by: each may be named `denom`."""
    return frozenset(op.args[1] for op in ops if op.facts.operator == "/")


def owners_of(roots: Mapping[str, Op]) -> dict[Op, list[str]]:
    """Map each op to the inputs whose gradients read it: a value of one gradient alone may be named after its input."""
    found: dict[Op, list[str]] = {}
    for name, root in roots.items():
        for op in root.walk():
            found.setdefault(op, []).append(name)
    return found
