"""What a section of the table says of its primitive, typed: the facts that passes ask for.

In: a section. Out: `Facts`, or what is wrong with the section. Invariant: what a section leaves out has the default of its
category, so that every primitive has a value for every fact.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from scaffold.primitives.spelling import key_of, parameters

CATEGORIES = frozenset(
    {"elementwise", "reduction", "loss", "same_shape", "view", "structural"}
    | {"contraction", "linalg", "indexing", "constant", "backward"}
)
# What the kind of a result is said by, beside the name of a parameter whose kind it has.
KINDS = frozenset(
    {"float", "kept", "number", "magnitude", "real", "complex", "int", "bool"}
)
# What the results of a category are made of.
MOVING = frozenset({"view", "structural", "indexing"})  # elements of the arguments
KEEPING = MOVING | {"contraction", "constant"}  # integers of integers
Memory = Literal["fresh", "view", "either", "same"]
Singular = Literal["", "zero", "length", "rank"]
Inline = Literal["", "always", "leaf"]
Sign = Literal["", "nonnegative", "nonpositive"]
Autocast = Literal["", "lower", "float32", "region", "number_first"]
# The words that a key takes, of those keys that take one of a few.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "memory": ("fresh", "view", "either", "same"),
    "singular": ("zero", "length", "rank"),
    "inline": ("always", "leaf"),
    "sign": ("nonnegative", "nonpositive"),
    "autocast": ("lower", "float32", "region", "number_first"),
}
# What is so or not, and by default not.
FLAGS = (
    *("several", "joins", "random", "random_factor", "uninitialised", "creates"),
    *("data_dependent", "contiguous", "recorded", "moves", "positive", "largest"),
    *("undifferentiated", "selects", "distribution", "log_distribution", "sized"),
    *("scale", "pole", "multilinear", "shares", "sized_by_data", "takes_several"),
    *("positions", "aligned", "limited", "once", "never_zero"),
    *("formula_in_place", "length", "takes_complex"),
    *("channels", "averages"),
)
# Measured, as `python -m benchmarks.passes` does it: what is not said otherwise is as fast as memory is.
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
EQUATION = "einsum"  # the shape of a result that an equation says
# What the shape of a result is said by, beside the name of a parameter, sizes and calls.
SHAPES = frozenset(
    {"along", "attention", "broadcast", "class_loss", "compared", "convolved"}
    | {"diagonal", "einsum", "expanded", "first", "flattened", "indexed", "joined"}
    | {"half_spectrum", "signal", "spectrum"}
    | {"linear", "loss", "moved", "padded", "pairs", "permuted", "product", "reduced"}
    | {"product_with_vector", "reshaped", "reversed", "selected", "sizes", "solved"}
    | {"squeezed", "stacked", "swapped", "transposed", "unflattened", "unfolded"}
    | {"unknown", "unsqueezed", "with_diagonal", "without_matrix"}
)
SHAPE = {
    "elementwise": "broadcast",
    "backward": "broadcast",
    "constant": "broadcast",
    "reduction": "reduced",
    "same_shape": "first",
    "loss": "loss",
}
DTYPES = ("promoted", "uniform", "own")
# A loss of several dtypes has now that of one, now that of another.
DTYPE = {"contraction": "uniform", "loss": "own"}
INHERITED = (
    *("kind", "shape", "passes", "memory", "dtype", "in_place", "singular"),
    *("inline", "optional", "sign", "words", "grad_words", "argument", "by_shape"),
    *("changes", "autocast", "untyped", "unbatched", "power", "spread", *FLAGS),
)
Section = Mapping[str, Any]


class Facts(NamedTuple):
    """What is known of a primitive beside its gradient; the header of `rules.toml` says what each fact means."""

    category: str
    results: tuple[str, ...] = ("result",)
    nondiff: tuple[str, ...] = ()  # tensors without a gradient
    linear: bool = False  # in all its differentiable arguments taken together
    complex: bool | Literal["only"] = True  # whether its formulas hold for complex ones
    kinds: tuple[str, ...] = ("float",)  # of each result, or of all
    memory: Memory = "fresh"
    singular: Singular = ""  # where its gradient has no bound
    flags: frozenset[str] = frozenset()  # those of FLAGS that it has
    # Arguments that a formula gives a gradient, or that `value` is of.
    differentiable: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()  # arguments that are positions
    masks: tuple[str, ...] = ()
    shape: str = "unknown"
    passes: int = 1  # time to compute it, for each number of the largest tensor
    # Of a float: "promoted", "uniform", "own", or the position of the argument that has it.
    dtype: str | int = "promoted"
    in_place: str | None = None  # the method that writes it into its first argument
    words: tuple[str, ...] = ()  # what its result is called, the best first
    grad_words: tuple[str, ...] = ()  # the same where a cotangent is in it
    argument: str = ""  # what a value is called that it is computed of
    inline: Inline = ""  # whether it is written out where it is read, again and again
    optional: tuple[tuple[int, str], ...] = ()  # tensors that may be None, by position
    sign: Sign = ""  # of a result that is real, whatever the arguments
    operator: str = ""  # of Python's that it is written by: `+`
    # Tensors without a gradient, by position.
    constants: tuple[tuple[int, str], ...] = ()
    changes: tuple[tuple[int, str], ...] = ()  # arguments that it writes into
    is_dear: bool = False  # nobody computes it twice, though it be as fast as a product
    chosen_by: str = ""  # the string that a call has which it is: `'nuc'` of norms
    autocast: Autocast = ""  # the precision that autocast computes it in
    by_shape: str = ""  # what does the same with the shape of its last tensor: `expand`
    untyped: tuple[str, ...] = ()  # names that PyTorch declares without a type
    unbatched: tuple[str, ...] = ()  # names that the vmap of gradcheck refuses
    power: float = 1  # of its argument, that its result is: 0.5 of a root
    spread: tuple[str, ...] = ()  # what it is called of a variance, of a mean square

    @property
    def is_one_tensor(self) -> bool:
        """Whether it returns one tensor, and no tuple of them."""
        return len(self.results) == 1 and not self.results[0].startswith("*")

    @property
    def is_view(self) -> bool:
        """Whether it rearranges its argument, and shares its memory, always."""
        return self.rearranges and self.memory == "view"

    @property
    def is_above_zero(self) -> bool:
        """Tell whether its result is positive whatever the arguments, underflow apart."""
        return self.sign == "nonnegative" and "never_zero" in self.flags

    @property
    def stays_positive(self) -> bool:
        """Tell whether its result is positive where its arguments are."""
        return "positive" in self.flags or "moves" in self.flags

    @property
    def clamps_below(self) -> bool:
        """Tell whether its second argument is the least that its result can be."""
        return self.differentiable[1:2] == ("min",)

    @property
    def rearranges(self) -> bool:
        """Whether its result is its argument in another shape or order, perhaps copied: `reshape`."""
        return self.category == "view"

    @property
    def takes_no_memory(self) -> bool:
        """Whether its result takes no memory of its own, as a rule."""
        return self.rearranges or self.memory == "view"

    def kind(self, position: int = 0) -> str:
        """What says the kind of a result."""
        return self.kinds[position if len(self.kinds) > 1 else 0]


class Wrong(NamedTuple):
    """What is wrong with a fact: its key, and what to say."""

    key: str
    message: str
    hint: str


def facts_of(section: Section) -> Facts:
    """The facts of a section that is known to be right."""
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
        frozenset(key for key in FLAGS if section.get(key, _is_usual(key, category))),
        tuple(section.get("grad", section.get("differentiable", ()))),
        tuple(name for name, said in domains if said.startswith("index(")),
        tuple(name for name, said in domains if said == "bool"),
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
    key = key_of(call, call)
    return key[1] if key and key[0] == "operator" else ""


def _is_usual(flag: str, category: str) -> bool:
    """Whether a flag holds of a category where nothing is said: a view has elements of what it is a view of."""
    return flag == "moves" and category == "view"


def _memory(section: Section) -> Memory:
    """What is not said: a function of a team's own may return its argument, which must not be written over."""
    if section["category"] == "view":
        return "view"
    return "either" if "from" in section else "fresh"


def _shape(section: Section) -> str:
    if section["category"] == "constant" and "keepdim" in section.get("call", ""):
        return "reduced"
    return SHAPE.get(section["category"], "unknown")


def _chosen_by(section: Section) -> str:
    """The string that an argument must be, unless it is that one where nothing is said."""
    found = re.search(r"== ('\w+')", section.get("when", ""))
    return found[1] if found and found[1] not in section.get("call", "") else ""


def _is_dear(section: Section, kinds: tuple[str, ...]) -> bool:
    """Whether a text computes it once: a root, a power, a logarithm (functions of floats, no operators), a softmax."""
    if section["category"] == "elementwise":
        return kinds == ("float",) and "(" in section.get("call", "")
    return section["category"] in ("same_shape", "backward")


def _dtype(section: Section) -> str | int:
    said: str = section.get("dtype", DTYPE.get(section["category"], "promoted"))
    names = parameters(section["call"]) if said not in DTYPES else ()
    return names.index(said) if said in names else said


def _in_place(section: Section, memory: str) -> str | None:
    """The method that writes the result into the first argument: that of the primitive, with an underscore."""
    usual = section["category"] == "elementwise" and memory == "fresh"
    if not section.get("in_place", usual):
        return None
    call = section.get("call", "")
    for head in (call, *section.get("also", ())):
        key = key_of(head, call)
        if key and key[0] == "method":
            return f"{key[1]}_"
    return None


def _optional(section: Section) -> tuple[tuple[int, str], ...]:
    """The tensors that may be None, each with its position among the parameters: those that are by default."""
    call, found = section.get("call", ""), section.get("optional", ())
    if "=None" in call and not found:
        differentiable = section.get("grad", section.get("differentiable", ()))
        tensors = {*differentiable, *section.get("nondiff", ())}
        found = tensors.intersection(re.findall(r"(\w+)=None", call))
    return _positions(section, found)


def _constants(section: Section) -> Collection[str]:
    """The tensors without a gradient; of the gradients of others PyTorch may have one that no rule is about."""
    return () if section["category"] == "backward" else section.get("nondiff", ())


def _positions(section: Section, found: Collection[str]) -> tuple[tuple[int, str], ...]:
    """Parameters, each with its position; of functions whose parameters nobody says there are none."""
    names = parameters(section["call"]) if found and "call" in section else ()
    return tuple((at, name) for at, name in enumerate(names) if name in found)


def wrong_facts(section: Section, parameters: Collection[str]) -> Iterator[Wrong]:
    """What is wrong with the facts of a section whose keys have the right types."""
    kinds = several(section.get("kind", ()))
    for kind in kinds:
        if kind not in KINDS and kind not in parameters:
            hint = f"{', '.join(sorted(KINDS))}, or a parameter whose kind it has"
            yield Wrong("kind", f"'{kind}' is no kind", hint)
    yield from _wrong_words(section, parameters)
    if len(kinds) > 1 and len(kinds) != len(section.get("results", ("result",))):
        yield Wrong(
            "kind", "as many kinds as results are given, or one", "kind = 'kept'"
        )


def _wrong_words(section: Section, parameters: Collection[str]) -> Iterator[Wrong]:
    """What is wrong with the facts that are one word, or a number."""
    dtype = section.get("dtype", "own")
    if dtype not in DTYPES and dtype not in parameters:
        hint = f"{', '.join(DTYPES)}, or a parameter whose dtype it has"
        yield Wrong("dtype", f"'{dtype}' is no dtype", hint)
    shape = section.get("shape", "unknown")
    if shape not in SHAPES | {*parameters} and not _is_expression(shape, parameters):
        hint = "a parameter, sizes: '(*x[:-1], n)', or a word of the table's header"
        yield Wrong("shape", f"'{shape}' is no shape", hint)
    if section.get("passes", 0) < 0:
        yield Wrong("passes", "'passes' is negative", "passes = 4")
    for key in ("words", "grad_words", "argument", "spread"):
        for word in several(section.get(key, ())):
            if not word.replace("{}", "x").isidentifier():
                yield Wrong(key, f"'{word}' is no name", "words = ['probs']")
    if section.get("in_place") and _in_place(section, "fresh") is None:
        hint = "also = ['method']"
        yield Wrong("in_place", "no method is among the spellings", hint)


def _is_expression(shape: str, parameters: Collection[str]) -> bool:
    """Whether it is sizes, or a call, over the parameters."""
    size = r"\*?(\w+)(?:\[[-:\d]*\])?"
    found = re.fullmatch(
        rf"(resized|windows|resampled|spread)?\((?:{size}(?:, {size})*,?)?\)", shape
    )
    words = re.findall(
        r"[A-Za-z_]\w*", shape.removeprefix(found[1] or "") if found else ""
    )
    return found is not None and set(words) <= {*parameters}


def inheriting(section: Section, base: Section) -> Section:
    """A section with the facts that it leaves out, of one for the same call."""
    if section["category"] != base["category"]:
        return section
    return {**{key: base[key] for key in INHERITED if key in base}, **section}


def several(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The strings of a value that is one, or several."""
    return (value,) if isinstance(value, str) else tuple(value)
