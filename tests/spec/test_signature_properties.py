"""Signatures at random: those that are right come back, those that are wrong are errors inside the text."""

from hypothesis import strategies as st

from scaffold.errors import Location, ScaffoldError
from scaffold.spec import Attribute, Input, TensorInput
from scaffold.spec.grammar import parse_entries
from scaffold.spec.op_spec import Domain, DType
from scaffold.spec.signature import parse_inputs, read_inputs, read_outputs
from tests.properties.budgets import searched

INPUTS = Location("--inputs")
NAMES = st.sampled_from(["x", "w", "bias", "mask", "input", "x1", "_y", "β"])
DIMS = st.one_of(st.sampled_from(["N", "D", "in_features"]), st.integers(1, 40))
DTYPES: list[DType] = ["float", "float", "int", "bool", "complex", "index"]
FLOATING: list[Domain] = ["normal", "positive", "unit", "nonzero", "distinct"]


@st.composite
def tensors(draw: st.DrawFn, name: str) -> TensorInput:
    dims = draw(st.none() | st.lists(DIMS, max_size=3).map(tuple))
    if dims is not None and draw(st.booleans()):
        position = draw(st.integers(0, len(dims)))
        named = position == 0 and draw(st.booleans())
        dims = (*dims[:position], "*batch" if named else "...", *dims[position:])
    dtype = draw(st.sampled_from(DTYPES)) if dims else "float"
    floating = dtype in ("float", "complex") and dims != ()
    domains: dict[str, list[Domain]] = (
        {"float": FLOATING, "complex": ["normal", "nonzero"]} if dims else {}
    )
    return TensorInput(
        name,
        dims,
        dtype=dtype,
        bound=draw(st.integers(1, 9)) if dtype == "index" else None,
        domain=draw(st.sampled_from(domains.get(dtype, ["normal"]))),
        const=floating and draw(st.booleans()),
        optional=draw(st.booleans()),
    )


ATTRIBUTES = st.sampled_from(
    [
        ("float", "1e-6"),
        ("float", None),
        ("int", "-3"),
        ("int | None", "None"),
        ("str", "'a; b?, [c'"),
        ("bool", "False"),
        ("tuple[int, ...]", "(1, 2)"),
        ("torch.dtype", "torch.float64"),
        ("object", None),
        ("Literal['mean', 'sum']", "'mean'"),
    ]
)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Input, ...]:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    inputs: list[Input] = [draw(tensors(names[0]))]
    for name in names[1:]:
        if draw(st.booleans()):
            inputs.append(draw(tensors(name)))
        else:
            inputs.append(Attribute(name, *draw(ATTRIBUTES)))
    return tuple(sorted(inputs, key=has_default))


def has_default(item: Input) -> bool:
    return isinstance(item, Attribute) and item.default is not None


def written(item: Input, space: str) -> str:
    """An input as its user could have written it."""
    if isinstance(item, Attribute):
        default = "" if item.default is None else f"{space}={space}{item.default}"
        return f"{item.name}{space}:{space}{item.annotation}{default}"
    traits: list[str] = [] if item.dtype in ("float", "index") else [item.dtype]
    traits += [f"index({space}{item.bound})"] if item.dtype == "index" else []
    traits += ["const"] if item.const else []
    traits += [] if item.domain == "normal" else [item.domain]
    shape = ""
    if item.dims is not None or traits:
        dims = f",{space}".join(str(dim) for dim in item.dims or ())
        shape = f"[{dims}{';' if traits else ''}{space}{' '.join(traits)}]"
    return f"{item.name}{space}{shape}{'?' if item.optional else ''}"


@searched(50, signatures(), st.sampled_from(["", " ", "  ", "\n "]), st.booleans())
def test_a_signature_comes_back_as_it_was_written(
    inputs: tuple[Input, ...], space: str, trailing: bool
) -> None:
    text = f",{space}".join(written(item, space) for item in inputs)
    assert parse_inputs(text + "," * trailing, INPUTS) == inputs


@searched(
    150,
    st.one_of(
        st.text(max_size=40),
        st.lists(
            st.sampled_from(
                ["x", "w", "[", "]", "N", "...", ",", ";", "?", ":", "=", "*", "int"]
                + ["index(", ")", "const", "3", "-", "'a'", "None", "tuple[", "|", "."]
                + ["torch", "float32", " ", "\n", "(", "Literal[", "True", "1e-6"]
            ),
            max_size=14,
        ).map("".join),
    ),
)
def test_any_text_is_a_signature_or_an_error_inside_it(text: str) -> None:
    lines = text.split("\n")
    for read in (read_inputs, read_outputs):
        try:
            read(parse_entries(text, INPUTS))
        except ScaffoldError as error:
            for problem in error.problems:
                place = problem.location
                assert place is not None and place.source == "--inputs"
                assert 1 <= place.line <= len(lines)
                assert 1 <= place.column <= len(text) + 1
