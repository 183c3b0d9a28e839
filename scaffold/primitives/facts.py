"""Facts of a primitive, typed, from its section of the table.

What the engine must know of a function besides its gradient: does its result share memory, has it a sign, is it worth saving? The
header of `rules.toml` explains each key. In: a section. Out: `Facts`, or the errors in the section. Invariant: a fact left out of
a section has the default of its category, so every primitive has a value for every fact.

Words: a *kind* is the sort of numbers in a result: "float", "int", "bool", or "kept", that of the arguments; a *flag* is a fact that
is true or false; a *position* of a parameter counts all of them from 0, a method's receiver included.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from scaffold.primitives.spelling import key_of, parameters

CATEGORIES = frozenset(
    {"elementwise", "reduction", "loss", "same_shape", "view", "structural"}
    | {"contraction", "linalg", "indexing", "constant", "backward"}
)
# The words for the kind of a result, besides a parameter of the same kind.
KINDS = frozenset(
    {"float", "kept", "number", "magnitude", "real", "complex", "int", "bool"}
)
# The contents of the results of some categories.
MOVING = frozenset({"view", "structural", "indexing"})  # elements of the arguments
KEEPING = MOVING | {"contraction", "constant"}  # integers from integers
Memory = Literal["fresh", "view", "either", "same"]
Singular = Literal["", "zero", "length", "rank"]
Inline = Literal["", "always", "leaf"]
Sign = Literal["", "nonnegative", "nonpositive"]
Autocast = Literal["", "lower", "float32", "region", "number_first"]
# The values of keys with a fixed set of values.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "memory": ("fresh", "view", "either", "same"),
    "singular": ("zero", "length", "rank"),
    "inline": ("always", "leaf"),
    "sign": ("nonnegative", "nonpositive"),
    "autocast": ("lower", "float32", "region", "number_first"),
}
# Facts that are true or false, false by default.
FLAGS = (
    *("several", "joins", "random", "random_factor", "uninitialised", "creates"),
    *("data_dependent", "contiguous", "recorded", "moves", "positive", "largest"),
    *("undifferentiated", "selects", "distribution", "log_distribution", "sized"),
    *("scale", "multilinear", "shares", "sized_by_data", "takes_several"),
    *("positions", "aligned", "limited", "once", "wrong_beyond", "never_zero"),
    *("length", "takes_complex", "for_complex"),
    *("channels", "averages"),
)
# The default of `passes`, the time of a call in passes over memory, as `python -m benchmarks.passes` measures it.
PASSES = {
    "constant": 1,
    "elementwise": 1,
    "loss": 2,
    "reduction": 1,
    "same_shape": 1,
    "view": 0,
    "structural": 1,
    "indexing": 2,
    "backward": 1,
    "contraction": 8,
    "linalg": 64,
}
EQUATION = "einsum"  # the shape of a result given by an equation
# The words for the shape of a result.
SHAPE = {
    "elementwise": "broadcast",
    "backward": "broadcast",
    "constant": "broadcast",
    "reduction": "reduced",
    "same_shape": "first",
    "loss": "loss",
}
DTYPES = ("promoted", "uniform", "own")
# A loss of tensors with several dtypes has the dtype of a different one each time.
DTYPE = {"contraction": "uniform", "loss": "own"}
# Facts that a team's section may take over from the built-in one of the same call.
INHERITED = (
    *("kind", "shape", "passes", "memory", "dtype", "in_place", "singular"),
    *("inline", "optional", "sign", "words", "grad_words", "argument", "by_shape"),
    *("changes", "autocast", "untyped", "unbatched", "power", "spread", *FLAGS),
)
Section = Mapping[str, Any]


class Facts(NamedTuple):
    """The facts of a primitive besides its gradient, as described in the header of `rules.toml`."""

    category: str
    results: tuple[str, ...] = ("result",)
    nondiff: tuple[str, ...] = ()  # tensors without a gradient
    linear: bool = False  # in all its differentiable arguments jointly
    complex: bool | Literal["only"] = True  # whether its formulas hold for complex ones
    kinds: tuple[str, ...] = ("float",)  # of each result, or of all
    memory: Memory = "fresh"
    singular: Singular = ""  # places of unbounded gradients
    flags: frozenset[str] = frozenset()  # its true flags of FLAGS
    # Arguments with a gradient, by a formula of their own or through `value`.
    differentiable: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()  # arguments with positions of elements
    masks: tuple[str, ...] = ()
    shape: str = "unknown"
    passes: int = 1  # time per number of the largest tensor, a product taking 1
    # The dtype of a float result: "promoted", "uniform", "own", or an argument's
    # position.
    dtype: str | int = "promoted"
    in_place: str | None = None  # the method that writes into its first argument
    words: tuple[str, ...] = ()  # names for its result, best first
    grad_words: tuple[str, ...] = ()  # names for a result computed from a cotangent
    argument: str = ""  # a name for its argument
    inline: Inline = ""  # whether it is written out at each use
    optional: tuple[tuple[int, str], ...] = ()  # tensors that may be None, by position
    sign: Sign = ""  # of a real result, for all arguments
    operator: str = ""  # its spelling as a Python operator: `+`
    # Tensors without a gradient, by position.
    constants: tuple[tuple[int, str], ...] = ()
    changes: tuple[tuple[int, str], ...] = ()  # arguments it writes to
    is_dear: bool = False  # too expensive for a text to compute it twice
    chosen_by: str = ""  # the string argument that selects it: `'nuc'` for norms
    autocast: Autocast = ""  # its precision under autocast
    by_shape: str = ""  # the call with a shape for its last tensor: `expand`
    untyped: tuple[str, ...] = ()  # names without a declared result type in PyTorch
    unbatched: tuple[str, ...] = ()  # names the vmap of gradcheck rejects
    power: float = 1  # the result is this power of the argument: 0.5 for a root
    spread: tuple[str, ...] = ()  # names for its result on a variance or a mean square

    @property
    def is_one_tensor(self) -> bool:
        """Return whether it returns one tensor, not a tuple."""
        return len(self.results) == 1 and not self.results[0].startswith("*")

    @property
    def is_view(self) -> bool:
        """Return whether its result is always a view of its argument: its elements rearranged, in the same memory (`transpose`)."""
        return self.rearranges and self.memory == "view"

    @property
    def is_above_zero(self) -> bool:
        """Return whether its result is positive for all arguments, apart from underflow."""
        return self.sign == "nonnegative" and "never_zero" in self.flags

    @property
    def stays_positive(self) -> bool:
        """Return whether its result is positive for positive arguments."""
        return "positive" in self.flags or "moves" in self.flags

    @property
    def clamps_below(self) -> bool:
        """Return whether its second argument is a lower bound of its result, `clamp(x, min)`: a positive one keeps that above zero."""
        return self.differentiable[1:2] == ("min",)

    @property
    def rearranges(self) -> bool:
        """Return whether its result is its argument in another shape or order, perhaps copied: `reshape`."""
        return self.category == "view"

    @property
    def takes_no_memory(self) -> bool:
        """Return whether its result usually takes no memory of its own: it is a view, or may be one."""
        return self.rearranges or self.memory == "view"

    def kind(self, position: int = 0) -> str:
        """Return the word for the kind of the result at a position: one word may stand for all results."""
        return self.kinds[position if len(self.kinds) > 1 else 0]


class Wrong(NamedTuple):
    """An error in a fact: its key, a message and a hint."""

    key: str
    message: str
    hint: str


BOUND = re.compile(r"\bnot [a-z]")  # another argument is where an element has a kink


def _flags(section: Section, category: str) -> Iterator[str]:
    """Yield the true flags of a section, and `bounded` if an elementwise function has a kink where one argument equals another."""
    # Of a view the elements are those of its argument, if it does not say otherwise.
    usual = {"moves"} if category == "view" else set()
    yield from (flag for flag in FLAGS if section.get(flag, flag in usual))
    domains = " ".join(section.get("domain", {}).values())
    # A domain such as "any; not min_val": the kink of `clamp` lies at the bound.
    if category == "elementwise" and BOUND.search(domains):
        yield "bounded"


def facts_of(section: Section) -> Facts:
    """Return the facts of a valid section, with the defaults of its category for missing ones."""
    category, domains = section["category"], section.get("domain", {}).items()
    kinds = several(section.get("kind", "kept" if category in KEEPING else "float"))
    memory = section.get("memory", _memory(section))
    return Facts(
        category,
        tuple(section.get("results", ("result",))),
        tuple(section.get("nondiff", ())),
        section.get("linear", False),
        section.get("complex", True),
        kinds,
        memory,
        section.get("singular", ""),
        frozenset(_flags(section, category)),
        # `grad` has a formula for each argument; a section with `value` only lists them, as `differentiable`.
        tuple(section.get("grad", section.get("differentiable", ()))),
        tuple(name for name, domain in domains if domain.startswith("index(")),
        tuple(name for name, domain in domains if domain == "bool"),
        section.get("shape", _shape(section)),
        section.get("passes", PASSES[category]),
        _dtype(section),
        _in_place(section, memory),
        tuple(section.get("words", ())),
        tuple(section.get("grad_words", ())),
        section.get("argument", ""),
        section.get("inline", ""),
        _optional(section),
        section.get("sign", ""),
        _operator(section.get("call", "")),
        _positions(section, _constants(section)),
        _positions(section, section.get("changes", ())),
        _is_dear(section, kinds),
        _chosen_by(section),
        section.get("autocast", ""),
        section.get("by_shape", ""),
        tuple(section.get("untyped", ())),
        tuple(section.get("unbatched", ())),
        section.get("power", 1),
        tuple(section.get("spread", ())),
    )


def _operator(call: str) -> str:
    """Return the Python operator that a primitive is written as; "" if none."""
    key = key_of(call, call)
    return key[1] if key and key[0] == "operator" else ""


def _memory(section: Section) -> Memory:
    """Return the default of `memory`: a view shares it, any other result is fresh.

    Of a team's own function (a section with `from`) nothing is known: it may return its argument, which must not be overwritten.
    """
    if section["category"] == "view":
        return "view"
    return "either" if "from" in section else "fresh"


def _shape(section: Section) -> str:
    """Return the default of `shape`, the word for the shape of the result, by the category; a constant with `keepdim` is a reduction."""
    if section["category"] == "constant" and "keepdim" in section.get("call", ""):
        return "reduced"
    return SHAPE.get(section["category"], "unknown")


def _chosen_by(section: Section) -> str:
    """Return the string argument that selects this primitive, by its key `when`, `'nuc'` of `p == 'nuc'`; "" if it is the default."""
    found = re.search(r"== ('\w+')", section.get("when", ""))
    # `approximate='none'` in the call: that string is the default, so a call need not say it.
    return found[1] if found and found[1] not in section.get("call", "") else ""


def _is_dear(section: Section, kinds: tuple[str, ...]) -> bool:
    """Return whether a written text should compute it once, and name the result: a root, a power, a logarithm, a softmax.

    Elementwise functions count if their result is always floating and they are written as calls, not as operators.
    """
    if section["category"] == "elementwise":
        # `x + y` and `x > 0` have no parenthesis, `torch.exp(x)` has one.
        return kinds == ("float",) and "(" in section.get("call", "")
    return section["category"] in ("same_shape", "backward")


def _dtype(section: Section) -> str | int:
    """Return the fact `dtype`: the stated or default word, or the position of the parameter that it names."""
    dtype: str = section.get("dtype", DTYPE.get(section["category"], "promoted"))
    names = parameters(section["call"]) if dtype not in DTYPES else ()
    # Neither a word nor a parameter: `wrong_facts` reports it for a team's section.
    return names.index(dtype) if dtype in names else dtype


def _in_place(section: Section, memory: str) -> str | None:
    """Return the method that writes the result into its first argument, `exp_` of `exp`; None if it has none, or the section says so."""
    usual = section["category"] == "elementwise" and memory == "fresh"
    if not section.get("in_place", usual):
        return None
    call = section.get("call", "")
    # The method may be a spelling in `also` alone: "method" beside `torch.exp(x)`.
    for head in (call, *section.get("also", ())):
        key = key_of(head, call)
        if key and key[0] == "method":
            return f"{key[1]}_"
    return None


def _optional(section: Section) -> tuple[tuple[int, str], ...]:
    """Return the tensor parameters that may be None, with positions: those the section names, else those with None as their default."""
    call, found = section.get("call", ""), section.get("optional", ())
    if "=None" in call and not found:
        differentiable = section.get("grad", section.get("differentiable", ()))
        tensors = {*differentiable, *section.get("nondiff", ())}
        found = tensors.intersection(re.findall(r"(\w+)=None", call))
    return _positions(section, found)


def _constants(section: Section) -> Collection[str]:
    """Return the tensor parameters without a gradient.

    Of a `backward` primitive there are none: PyTorch may have a gradient for them that no rule has.
    """
    return () if section["category"] == "backward" else section.get("nondiff", ())


def _positions(section: Section, found: Collection[str]) -> tuple[tuple[int, str], ...]:
    """Return the parameters in `found` with their positions; none if the section has no `call`, so that its parameters are unknown."""
    names = parameters(section["call"]) if found and "call" in section else ()
    return tuple((at, name) for at, name in enumerate(names) if name in found)


def wrong_facts(section: Section, parameters: Collection[str]) -> Iterator[Wrong]:
    """Yield the errors in the facts of a team's section, with the names of its `parameters`; the types of its keys are checked before."""
    kinds = several(section.get("kind", ()))
    for kind in kinds:
        if kind not in KINDS and kind not in parameters:
            hint = f"{', '.join(sorted(KINDS))}, or a parameter whose kind it has"
            yield Wrong("kind", f"'{kind}' is not a kind", hint)
    yield from _wrong_words(section, parameters)
    if len(kinds) > 1 and len(kinds) != len(section.get("results", ("result",))):
        yield Wrong(
            "kind", "as many kinds as results are given, or one", "kind = 'kept'"
        )


def _wrong_words(section: Section, parameters: Collection[str]) -> Iterator[Wrong]:
    """Yield the errors in the facts `dtype`, `passes` and `in_place`, and in the names for results."""
    dtype = section.get("dtype", "own")
    if dtype not in DTYPES and dtype not in parameters:
        hint = f"{', '.join(DTYPES)}, or a parameter whose dtype it has"
        yield Wrong("dtype", f"'{dtype}' is not a dtype", hint)
    if section.get("passes", 0) < 0:
        yield Wrong("passes", "'passes' is negative", "passes = 4")
    for key in ("words", "grad_words", "argument", "spread"):
        for word in several(section.get(key, ())):
            # `{}_over_{}` has holes for the names of the arguments.
            if not word.replace("{}", "x").isidentifier():
                yield Wrong(key, f"'{word}' is not a name", "words = ['probs']")
    # A stated `in_place` goes before the default, so any memory does as an argument here.
    if section.get("in_place") and _in_place(section, "fresh") is None:
        hint = "also = ['method']"
        yield Wrong("in_place", "no method is among the spellings", hint)


def inheriting(section: Section, base: Section) -> Section:
    """Return a team's section, completed by the facts of the built-in section for the call (`base`) if both have one category."""
    if section["category"] != base["category"]:
        return section
    # The team's own keys come last, so they win.
    return {**{key: base[key] for key in INHERITED if key in base}, **section}


def several(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the strings of a value of the table that may be one string or a list: `kind = "kept"`, `kind = ["kept", "int"]`."""
    return (value,) if isinstance(value, str) else tuple(value)
