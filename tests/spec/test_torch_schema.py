"""PyTorch's schema strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffold.errors import Location, ScaffoldError
from scaffold.spec import Attribute, Input, Output, TensorInput
from scaffold.spec.signature import parse_inputs, read_inputs, read_outputs
from scaffold.spec.torch_schema import parse_schema

SCHEMA = Location("--schema")
Tensor = TensorInput


def inputs(arguments: str) -> tuple[Input, ...]:
    return read_inputs(parse_schema(f"f({arguments}) -> Tensor", SCHEMA).inputs)


@pytest.mark.parametrize(
    ("arguments", "signature"),
    [
        ("Tensor input, Tensor? bias=None", "input, bias?"),
        ("Tensor x, Tensor? bias", "x, bias?"),
        ("Tensor x, float eps=1e-05", "x, eps: float = 1e-05"),
        ("Tensor x, SymInt n, bool on=True", "x, n: int, on: bool = True"),
        ("Tensor x, Scalar s=1", "x, s: float = 1"),
        ("Tensor x, str mode='mean'", "x, mode: str = 'mean'"),
        ('Tensor x, str mode="a, b)"', 'x, mode: str = "a, b)"'),
        ("Tensor x, int? dim=None", "x, dim: int | None = None"),
        ("Tensor x, int[] dims=[0, 1]", "x, dims: tuple[int, ...] = (0, 1)"),
        ("Tensor x, int[] dims=[]", "x, dims: tuple[int, ...] = ()"),
        ("Tensor x, int[1]? dim=None", "x, dim: tuple[int, ...] | None = None"),
        ("Tensor x, int[1] dim=3", "x, dim: tuple[int, ...] = (3,)"),
        ("Tensor x, int[2] stride=1", "x, stride: tuple[int, int] = (1, 1)"),
        ("Tensor x, bool[3] mask", "x, mask: tuple[bool, bool, bool]"),
        ("Tensor x, float[]? s=None", "x, s: tuple[float, ...] | None = None"),
        ("Tensor x, ScalarType? dtype=None", "x, dtype: dtype | None = None"),
        ("Tensor x, ScalarType dtype=long", "x, dtype: dtype = torch.int64"),
        ("Tensor x, Device? device=None", "x, device: device | None = None"),
        ("Tensor x, int reduction=Mean", "x, reduction: int = 1"),
        ("Tensor x, Generator? rng=None", "x, rng: torch.Generator | None = None"),
        (
            "Tensor x, MemoryFormat? memory_format=contiguous_format",
            "x, memory_format: torch.memory_format | None = torch.contiguous_format",
        ),
        ("int n, Tensor[] xs", "n: int, *xs"),
        ("Tensor[] xs, int dim=0", "*xs, dim: int = 0"),
    ],
)
def test_a_schema_says_what_the_grammar_could(arguments: str, signature: str) -> None:
    assert inputs(arguments) == parse_inputs(signature, SCHEMA)


def test_the_star_makes_keyword_only_arguments() -> None:
    assert inputs("Tensor x, int n=1, *, Tensor? y=None, int k") == (
        Tensor("x"),
        Attribute("n", "int", "1"),
        Tensor("y", optional=True, keyword_only=True),
        Attribute("k", "int", keyword_only=True),
    )


def test_a_name_may_have_namespaces_and_an_overload() -> None:
    schema = parse_schema("aten::my::sort.stable(Tensor x) -> Tensor", SCHEMA)
    assert [entry.name.text for entry in schema.inputs] == ["x"]


def test_an_alias_that_is_written_is_dirty() -> None:
    text = "f(Tensor(a!) x, Tensor(b) y, Tensor(c -> *) z) -> Tensor(a!)"
    assert parse_schema(text, SCHEMA).dirty == ("x",)


@pytest.mark.parametrize(
    ("returns", "outputs"),
    [
        ("Tensor", [Output("output")]),
        ("Tensor(a!)", [Output("output")]),
        ("Tensor[]", [Output("outputs", variadic=True)]),
        ("(Tensor)", [Output("output")]),
        ("Tensor values", [Output("values")]),
        ("(Tensor, Tensor)", [Output("output0"), Output("output1")]),
        (
            "(Tensor values, Tensor[] rest)",
            [Output("values"), Output("rest", variadic=True)],
        ),
    ],
)
def test_returns(returns: str, outputs: list[Output]) -> None:
    schema = parse_schema(f"f(Tensor x) -> {returns}", SCHEMA)
    assert read_outputs(schema.outputs) == tuple(outputs)


EXAMPLE = "hint: write: 'name(Tensor x, float eps=1e-6) -> Tensor'"
RETURNS = "hint: an op returns tensors: Tensor, (Tensor, Tensor) or Tensor[]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"1: expected the op's name, found nothing\n{EXAMPLE}"),
        ("f", f"2: expected '('\n{EXAMPLE}"),
        ("f:g(Tensor x) -> Tensor", f"3: expected '::'\n{EXAMPLE}"),
        ("f(Tensor x", "2: '(' is never closed\nhint: close it with ')', as in: 'scale(Tensor x, float a) -> Tensor'"),
        ("f() -> Tensor", f"1: an op needs a tensor\n{EXAMPLE}"),
        (
            "f(Tensor x)",
            "12: the schema does not say what it returns\nhint: end it with: -> Tensor",
        ),
        (
            "f(Tensor x) -> ()",
            "17: an op returns at least one tensor\nhint: write: -> Tensor",
        ),
        (
            "f(Tensor x) -> int",
            f"16: a return of type 'int' cannot be generated\n{RETURNS}",
        ),
        (
            "f(Tensor x) -> Tensor?",
            f"16: a return of type 'Tensor?' cannot be generated\n{RETURNS}",
        ),
        ("f(Tensor x) -> Tensor y z", f"25: unexpected 'z'\n{EXAMPLE}"),
        (
            "f(Tenso x) -> Tensor",
            "3: unknown type 'Tenso'\nhint: did you mean 'Tensor'?",
        ),
        ("f(Tensor) -> Tensor", f"9: expected the name of the argument, found nothing\n{EXAMPLE}"),
        ("f(Tensor x=3) -> Tensor", "12: the default of a tensor is None\nhint: write: Tensor? bias=None"),
        ("f(Tensor x=None) -> Tensor", "12: only an optional tensor may be None\nhint: write: Tensor? bias=None"),
        ("f(Tensor?[] xs) -> Tensor", "3: a list with optional elements is not supported"),
        ("f(Tensor[]? xs) -> Tensor", "13: a list of tensors cannot be optional\nhint: it may be empty as it is"),
        ("f(Tensor x, int n=) -> Tensor", "19: expected a default"),
        ("f(Tensor x, int[2 n) -> Tensor", "16: '[' is never closed\nhint: close it with ']', as in: 'x[N, D], eps: float'"),
    ],
)  # fmt: skip
def test_what_is_no_schema(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        parse_schema(text, SCHEMA)
    place, _, words = message.partition(": ")
    assert str(caught.value) == f"{Location('--schema', 1, int(place))}: {words}"


def test_a_default_must_fit_its_type() -> None:
    with pytest.raises(ScaffoldError) as caught:
        inputs("Tensor x, int n=1.5, int[2] k=[1, 2, 3]")
    assert [str(item) for item in caught.value.problems] == [
        "--schema:1:13: the default 1.5 does not fit the type int\nhint: write another default, or another type, as in: 'eps: float = 1e-6'",
        "--schema:1:24: the default (1, 2, 3) does not fit the type tuple[int, int]\nhint: write another default, or another type, as in: 'eps: float = 1e-6'",
    ]


PIECES = [
    "Tensor",
    "int",
    " ",
    "x",
    "y",
    "(",
    ")",
    "[",
    "]",
    "?",
    "=",
    ",",
    "*",
    "->",
] + ["(a!)", "1", "None", "f(", "aten::", ".", "'a'", "\n", "bool[2]"]


@given(
    st.one_of(
        st.text(max_size=40),
        st.lists(st.sampled_from(PIECES), max_size=16).map("".join),
        st.lists(st.sampled_from(PIECES), max_size=16).map(
            lambda pieces: f"f(Tensor x, {''.join(pieces)}) -> Tensor"
        ),
    )
)
def test_any_text_is_a_schema_or_an_error_with_a_place(text: str) -> None:
    try:
        schema = parse_schema(text, SCHEMA)
        read_inputs(schema.inputs)
        read_outputs(schema.outputs)
    except ScaffoldError as error:
        for problem in error.problems:
            place = problem.location
            assert place is not None and place.source == "--schema"
            assert place.line <= text.count("\n") + 1
