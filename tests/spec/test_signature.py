"""The grammar of `--inputs` and `--outputs`."""

import re

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.spec import Attribute, Input, Output, TensorInput
from scaffold.spec.grammar import parse_entries
from scaffold.spec.signature import parse_inputs, read_outputs

ONE_OF = "hint: write one: '*batch' for leading dims that are the same wherever the name stands, '...' for any"
INPUTS = Location("--inputs")
OUTPUTS = Location("--outputs")
Tensor = TensorInput
OPTIONAL = TensorInput("b", optional=True)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("x", [Tensor("x")]),
        ("x, w, bias?", [Tensor("x"), Tensor("w"), Tensor("bias", optional=True)]),
        ("x, bias=None", [Tensor("x"), Tensor("bias", optional=True)]),
        ("w[O, I]", [Tensor("w", ("O", "I"))]),
        ("x[..., D]", [Tensor("x", ("...", "D"))]),
        ("x[N, C, ...]", [Tensor("x", ("N", "C", "..."))]),
        (
            "q[*batch, S], k[* batch, T], m[*other]",
            [
                Tensor("q", ("*batch", "S")),
                Tensor("k", ("*batch", "T")),
                Tensor("m", ("*other",)),
            ],
        ),
        ("x[2, 30]", [Tensor("x", (2, 30))]),
        ("x[]", [Tensor("x", ())]),
        ("x[D]?", [Tensor("x", ("D",), optional=True)]),
        ("x?[D]", [Tensor("x", ("D",), optional=True)]),
        ("x[D]?=None", [Tensor("x", ("D",), optional=True)]),
        ("m[..., S; bool]", [Tensor("m", ("...", "S"), "bool")]),
        ("m[; bool]", [Tensor("m", None, "bool")]),
        ("x, m; bool", [Tensor("x"), Tensor("m", None, "bool")]),
        ("x: Tensor, b: torch.Tensor", [Tensor("x"), Tensor("b")]),
        ("x: Tensor, b: Tensor | None = None", [Tensor("x"), OPTIONAL]),
        ("x: Tensor, b: Optional[Tensor]", [Tensor("x"), OPTIONAL]),
        ("Tensor x, Tensor? b", [Tensor("x"), OPTIONAL]),
        ("m: torch.BoolTensor", [Tensor("m", None, "bool")]),
        ("m: torch.bool", [Tensor("m", None, "bool")]),
        ("m[N]: bool, i[N]: int, x[N]: float", [Tensor("m", ("N",), "bool"), Tensor("i", ("N",), "int"), Tensor("x", ("N",))]),
        ("i[N]: torch.long | None", [Tensor("i", ("N",), "int", optional=True)]),
        ("x: torch.float16", [Tensor("x")]),
        ("z: ComplexTensor", [Tensor("z", None, "complex")]),
        ("x, float eps=1e-5", [Tensor("x"), Attribute("eps", "float", "1e-5")]),
        ("z[...; complex]", [Tensor("z", ("...",), "complex")]),
        (
            "x[N, C], t[N; index(C)]",
            [Tensor("x", ("N", "C")), Tensor("t", ("N",), "index", "C")],
        ),
        ("t[N; index(10)]", [Tensor("t", ("N",), "index", 10)]),
        (
            "t[N; index(count)], count: int",
            [Tensor("t", ("N",), "index", "count"), Attribute("count", "int")],
        ),
        (
            "t[N; index(count)], count = 4",
            [Tensor("t", ("N",), "index", "count"), Attribute("count", "int", "4")],
        ),
        ("s[D; const]", [Tensor("s", ("D",), const=True)]),
        ("s[D; int const]", [Tensor("s", ("D",), "int")]),
        (
            "s[D; const, positive]",
            [Tensor("s", ("D",), const=True, domain="positive")],
        ),
        ("a[..., N, N; spd]", [Tensor("a", ("...", "N", "N"), domain="spd")]),
        ("z[N; complex nonzero]", [Tensor("z", ("N",), "complex", domain="nonzero")]),
        ("x, *xs", [Tensor("x"), Tensor("xs", variadic=True)]),
        (
            "*xs, dim: int = 0",
            [
                Attribute("dim", "int", "0", keyword_only=True),
                Tensor("xs", variadic=True),
            ],
        ),
        ("dim: int, *xs", [Attribute("dim", "int"), Tensor("xs", variadic=True)]),
        ("bias?, x", [Tensor("bias", optional=True), Tensor("x")]),
        ("bias?, n: int, x", [Tensor("bias", optional=True), Attribute("n", "int"), Tensor("x")]),
        (" x ,\n  w[\n D ]\t, ", [Tensor("x"), Tensor("w", ("D",))]),
    ],
)  # fmt: skip
def test_tensors(text: str, inputs: list[Input]) -> None:
    assert parse_inputs(text, INPUTS) == tuple(inputs)


@pytest.mark.parametrize(
    ("text", "annotation", "default"),
    [
        ("eps: float = 1e-6", "float", "1e-6"),
        ("eps: float = 1", "float", "1"),
        ("eps = 1E-6", "float", "1E-6"),
        ("n = 1_000", "int", "1_000"),
        ("n = -3", "int", "-3"),
        ("slope = -0.5", "float", "-0.5"),
        ("on = True", "bool", "True"),
        ("mode = 'a, b]'", "str", "'a, b]'"),
        ('mode = "it\'s"', "str", '"it\'s"'),
        ("dims = (-2, -1)", "tuple[int, ...]", "(-2, -1)"),
        ("dims = (1, 'a')", "tuple[int, str]", "(1, 'a')"),
        ("dims = ((1, 2), (3, 4))", "tuple[tuple[int, ...], ...]", "((1, 2), (3, 4))"),
        ("dims: tuple[int, ...] = ()", "tuple[int, ...]", "()"),
        ("n: Optional[int] = 3", "int | None", "3"),
        ("n: Optional[int] = None", "int | None", "None"),
        ("dims: tuple[int, int]", "tuple[int, int]", None),
        ("dims: tuple[()]", "tuple[()]", None),
        ("kind = torch.float32", "torch.dtype", "torch.float32"),
        ("kind: dtype = torch.bfloat16", "torch.dtype", "torch.bfloat16"),
        ("kind: torch.dtype", "torch.dtype", None),
        (
            "kind = torch.channels_last",
            "torch.memory_format",
            "torch.channels_last",
        ),
        ("where: device", "torch.device", None),
        ("where: device = None", "torch.device | None", "None"),
        ("n: int | None = None", "int | None", "None"),
        ("n: int | None = 3", "int | None", "3"),
        ("n: None | int", "None | int", None),
        ("mode: Literal['mean', 'sum'] = 'sum'", "Literal['mean', 'sum']", "'sum'"),
        ('mode: Literal["a"]', "Literal['a']", None),
        ("p: Literal[1, -1, True, None] = -1", "Literal[1, -1, True, None]", "-1"),
        ("group: object", "object", None),
        ("group: object = ()", "object", "()"),
        ("rng: torch.Generator", "torch.Generator", None),
        ("kinds: tuple[dtype, ...]", "tuple[torch.dtype, ...]", None),
    ],
)
def test_attributes(text: str, annotation: str, default: str | None) -> None:
    name = re.split("[ :=]", text)[0]
    _, found = parse_inputs(f"x, {text}", INPUTS)
    assert found == Attribute(name, annotation, default)


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("torch.distributed.ProcessGroup", '"ProcessGroup"'),
        ("torch.distributed.ProcessGroup | None", '"ProcessGroup | None"'),
        ("torch.distributed.ProcessGroup = None", '"ProcessGroup | None"'),
    ],
)
def test_a_dotted_type_is_quoted_and_imported(text: str, annotation: str) -> None:
    found = parse_inputs(f"x, group: {text}", INPUTS)[1]
    default = "None" if "=" in text else None
    imported = ("torch.distributed", "ProcessGroup")
    assert found == Attribute("group", annotation, default, imported)


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("y", [Output("y")]),
        (
            "values[..., K], indices[..., K; int]",
            [Output("values", ("...", "K")), Output("indices", ("...", "K"), "int")],
        ),
        ("mask[; bool], c[N; const]", [Output("mask", None, "bool"), Output("c", ("N",), const=True)]),
        ("first, *rest", [Output("first"), Output("rest", variadic=True)]),
    ],
)  # fmt: skip
def test_outputs(text: str, outputs: list[Output]) -> None:
    assert read_outputs(parse_entries(text, OUTPUTS)) == tuple(outputs)


KNOWN = "float, int, bool, str, object, dtype, device, tuple, Literal"
LITERAL = "hint: write a number, a string, True, False, None or a tuple of these"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the list is empty\nhint: write: 'x, weight, bias?'"),
        (" , ", "1: the list is empty\nhint: write: 'x, weight, bias?'"),
        ("x,,y", "3: expected a name, found nothing\nhint: write inputs as in: 'x[N, D], bias[D]?, eps: float = 1e-6'"),
        ("x y", "3: expected ',' before 'y'\nhint: write: 'x, y'"),
        ("x, 2", "4: expected a name, found '2'\nhint: write inputs as in: 'x[N, D], bias[D]?, eps: float = 1e-6'"),
        (
            "x $",
            (
                "3: unexpected character '$'\n"
                "hint: write inputs as in: 'x[N, D], bias[D]?, eps: float = 1e-6'"
            ),
        ),
        ("x, m = 'a", "8: this string is not closed"),
        ("x[N", "2: '[' is never closed\nhint: close it with ']', as in: 'x[N, D], eps: float'"),
        ("x]", "2: unmatched ']'\nhint: write a shape as in: 'x[N, D]'"),
        ("x[N)", "4: unmatched ')'\nhint: write a shape as in: 'x[N, D]'"),
        ("x??", "3: '?' is given twice"),
        (
            "x(N)",
            ("2: expected ',' or the end, found '('\n"
            "hint: a shape stands in square brackets: 'x[N, D]'"),
        ),
        (
            "x!",
            ("2: expected ',' or the end, found '!'\n"
            "hint: say what is changed in place with --dirty"),
        ),
        (
            "x[N*2]",
            ("4: unexpected character '*'\nhint: a dim is a name or a number: write M "
            "for N*2, with --require 'M % 2 == 0'"),
        ),
        (
            "x[..., 2 * D], M, w[D, K]",
            ("10: unexpected character '*'\nhint: a dim is a name or a number: write N "
            "for 2 * D, with --require 'N == 2 * D'"),
        ),
        (
            "x[D], w[D, 2H], b[2H]?",
            ("13: unexpected character 'H'\nhint: a dim is a name or a number: write M "
            "for 2H, with --require 'M % 2 == 0'"),
        ),
        (
            "q[B, H*G, D], k[B, H, D]",
            ("7: unexpected character '*'\nhint: a dim is a name or a number: write M "
            "for H*G, with --require 'M % H == 0'"),
        ),
        (
            "x[D], y[D/2]",
            ("10: unexpected character '/'\nhint: a dim is a name or a number: write M "
            "for D/2, with --require 'M == D//2'"),
        ),
        (
            "x[N], y[N-1]",
            ("10: unexpected character '-'\nhint: a dim is a name or a number: write M "
            "for N-1, with --require 'M == N-1'"),
        ),
        (
            "x[N+1]",
            ("4: unexpected character '+'\n"
            "hint: a dim is a name or a number: write M for N+1"),
        ),
        (
            "x[-1]",
            ("3: expected a dimension, found '-'\n"
            "hint: a dimension is a name, a size, '...' or '*batch'"),
        ),
        (
            "x[0]",
            ("3: 0 is not a size\n"
            "hint: sizes are integers from 1; empty cases are tested anyway"),
        ),
        (
            "x[1.5]",
            ("3: 1.5 is not a size\n"
            "hint: sizes are integers from 1; empty cases are tested anyway"),
        ),
        ("x[..., N, ...]", "11: a shape can hold '...' only once\nhint: keep one of them: 'x[..., D]'"),
        ("x[*a, N, *a]", f"10: a shape can hold '*a' only once\n{ONE_OF}"),
        ("x[*a, *b]", f"7: a shape cannot hold both '*a' and '*b'\n{ONE_OF}"),
        ("x[*a, ...]", f"7: a shape cannot hold both '*a' and '...'\n{ONE_OF}"),
        ("x[..., *a]", f"8: a shape cannot hold both '...' and '*a'\n{ONE_OF}"),
        ("x[N, *batch, D]", "6: '*batch' must stand first\nhint: give each dim a name, or leave the shape out"),
        ("x[...batch, D]", "6: expected ',' or ']', found 'batch'\nhint: leading dims that have a name: '*batch'"),
        ("x[*, D]", "4: expected the name of the leading dims, found ','\nhint: write: 'q[*batch, S, D]'"),
        ("x[*2]", "4: expected the name of the leading dims, found '2'\nhint: write: 'q[*batch, S, D]'"),
        ("x[*n, D], y[n]", "13: 'n' and '*n' have the same name\nhint: give one of them another name"),
        ("y[n], x[*n, n]", ("3: 'n' and '*n' have the same name\nhint: give one of them another name\n"
            "--inputs:1:13: 'n' and '*n' have the same name\nhint: give one of them another name")),
        ("x[*x, D]", "3: the dimension '*x' has the name of an input\nhint: give one of them another name"),
        ("x[*class]", "3: 'class' cannot name a dimension: it is a keyword of Python\nhint: choose another name, such as 'class_'"),
        ("x[*b, N; index(b)]", "16: no input has a dimension 'b'\nhint: declare it, as in 'logits[N, b]' or 'b: int', or write a number"),
        ("x[*b; simplex]", "7: 'simplex' needs a shape with a last size\nhint: write: [..., C; simplex]"),
        ("x[N; bol]", "6: unknown trait 'bol'\nhint: did you mean 'bool'?"),
        ("x[N; long]", "6: unknown trait 'long'\nhint: write: int"),
        ("x[N; int bool]", "10: 'bool' contradicts 'int'\nhint: keep one of them: '; int' or '; bool'"),
        ("x[N; positive unit]", "15: 'unit' contradicts 'positive'\nhint: keep one of them: '; positive' or '; unit'"),
        ("x[N; index]", "6: 'index' needs a size: its values are integers below it\nhint: write: target[N; index(C)]"),
        ("x[N; int(3)]", "10: 'int' takes no argument"),
        ("x[N; bool positive]", "11: 'positive' has no meaning for a tensor of dtype bool"),
        ("x[N; spd]", "6: 'spd' needs a shape whose last two sizes are equal\nhint: write: [..., N, N; spd]"),
        ("x[...; simplex]", "8: 'simplex' needs a shape with a last size\nhint: write: [..., C; simplex]"),
        (
            "x[N], t[N; index(C)]",
            ("18: no input has a dimension 'C'\n"
            "hint: declare it, as in 'logits[N, C]' or 'C: int', or write a number"),
        ),
        (
            "t[N; index(eps)], eps: float",
            ("12: no input has a dimension 'eps'\n"
            "hint: declare it, as in 'logits[N, eps]' or 'eps: int', or write a number"),
        ),
        ("x[in_feature], t[N; index(in_features)]", "27: no input has a dimension 'in_features'\nhint: did you mean 'in_feature'?"),
        ("x[D], D", "3: the dimension 'D' has the name of an input\nhint: give one of them another name"),
        ("x[D], y[D], D", "3: the dimension 'D' has the name of an input\nhint: give one of them another name"),
        ("x[nn, F, ctx, cls]", "3: 'nn' cannot name a dimension: it has a meaning in generated code\nhint: choose another name, such as 'nn_'"),
        ("x, x", "4: 'x' occurs twice\nhint: give one of them another name"),
        ("lambda", "1: 'lambda' cannot name an input: it is a keyword of Python\nhint: choose another name, such as 'lambda_'"),
        ("grad_x", "1: 'grad_x' cannot name an input: it is kept for gradients\nhint: choose another name, such as 'x_grad'"),
        ("*xs?", "2: '*xs' cannot be optional\nhint: it may be empty as it is"),
        ("*xs, y", "2: '*xs' must be the last tensor\nhint: move 'y' before '*xs'"),
        ("x, *xs: int", "5: '*xs' can only be tensors\nhint: write: xs: tuple[int, ...]"),
        ("n = 1, *xs", "1: the default of 'n' could not be used before '*xs'\nhint: move it behind: '*xs, n = ...'"),
        (
            "x, n = 1, w",
            ("11: 'w' has no default but follows 'n', which has one\n"
            "hint: move 'w' before 'n'"),
        ),
        ("n = 1", "1: an op needs a tensor\nhint: a bare name is a tensor: 'x, eps: float = 1e-6'"),
        ("x, n: int?", f"7: int? is not a type\nhint: write one of {KNOWN}, or a dotted name such as package.module.Name"),
        ("x, n?: int", "4: '?' is for tensors\nhint: write: n: int | None = None"),
        ("x, n[D]: str", "4: 'n' has the shape of a tensor and the type of an attribute\nhint: leave the type out"),
        ("x, n[D] = 3", "4: 'n' has the shape of a tensor and the default of an attribute\nhint: the default of a tensor is None"),
        ("x, s: strng", "7: 'strng' is not a known type\nhint: did you mean 'str'?"),
        ("x, s: Tensor = 1", "7: 'Tensor' is not the type of an attribute\nhint: tensors are bare names: 'x', 'x?' where it may be None, '*xs' for any number of them"),
        ("x, s: tuple[torch.Tensor]", "13: 'Tensor' is not the type of an attribute\nhint: tensors are bare names: 'x', 'x?' where it may be None, '*xs' for any number of them"),
        ("x, s: list[int]", "7: 'list[int]' is not a known type\nhint: write: tuple[int, ...]"),
        ("x, s: tuple[int, Callable]", "18: 'Callable' is not a known type\nhint: write: collections.abc.Callable"),
        ("x, s: Literal[1.5]", "15: '1.5' cannot stand in Literal\nhint: Literal lists strings, integers, True, False or None"),
        ("x, s: a.B | c.D", "13: 'c.D' is a second imported type: an input can have one\nhint: write: object"),
        ("x, s: a.__b__", "7: 'a.__b__' is private to Python"),
        ("x, s: int =", "12: expected a default, found nothing\nhint: write inputs as in: 'x[N, D], bias[D]?, eps: float = 1e-6'"),
        ("x, s: = 3", "7: expected a type, found '='\nhint: write inputs as in: 'x[N, D], bias[D]?, eps: float = 1e-6'"),
        ("x, s: int = 'a'", "7: the default 'a' does not fit the type int\nhint: write another default, or another type, as in: 'eps: float = 1e-6'"),
        ("x, s: int = True", "7: the default True does not fit the type int\nhint: write another default, or another type, as in: 'eps: float = 1e-6'"),
        ("x, s: int = 1.5", "7: the default 1.5 does not fit the type int\nhint: write another default, or another type, as in: 'eps: float = 1e-6'"),
        ("x, s: Literal['a'] = 'b'", "7: the default 'b' does not fit the type Literal['a']\nhint: write another default, or another type, as in: 'eps: float = 1e-6'"),
        ("x, s: tuple[int, int] = (1,)", "7: the default (1,) does not fit the type tuple[int, int]\nhint: write another default, or another type, as in: 'eps: float = 1e-6'"),
        ("x, d: device = 'cpu'", "7: the default 'cpu' does not fit the type device\nhint: a device has no literal: write 'device | None = None'"),
        ("x, s = [1]", "8: a default cannot be mutable\nhint: write a tuple: (1, 2)"),
        ("x, s = ()", "8: the type of () is not known\nhint: write one: sizes: tuple[int, ...] = ()"),
        ("x, s = f()", f"8: the default f() is not a literal\n{LITERAL}"),
        ("x, s = -y", f"8: the default -y is not a literal\n{LITERAL}"),
        ("x, s = '\\d'", f"8: the default '\\d' is not a literal\n{LITERAL}"),
        ("x, s = 2j", "8: a default cannot be of type complex"),
        ("x, s = torch.float23", "8: torch has no dtype 'float23'\nhint: did you mean 'float32'?"),
    ],
)  # fmt: skip
def test_what_is_no_input(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        parse_inputs(text, INPUTS)
    place, _, words = message.partition(": ")
    assert str(caught.value) == f"{Location('--inputs', 1, int(place))}: {words}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y?", "1: an output cannot be optional"),
        (
            "y: float",
            (
                "4: an output is a tensor: it has no type and no default\n"
                "hint: an integer output is written 'y[N; int]'"
            ),
        ),
        ("*ys, y", "2: '*ys' must be the last output"),
        (
            "y[; positive]",
            "5: an output cannot be 'positive': the trait describes test values of an input",
        ),
        (
            "y[N; index(N)]",
            (
                "6: an output cannot be 'index': the trait describes test values of an input\n"
                "hint: write: indices[N; int]"
            ),
        ),
        ("y[N; itn]", "6: unknown trait 'itn'\nhint: did you mean 'int'?"),
    ],
)
def test_what_is_no_output(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        read_outputs(parse_entries(text, OUTPUTS))
    place, _, words = message.partition(": ")
    assert str(caught.value) == f"{Location('--outputs', 1, int(place))}: {words}"


def test_all_problems_come_together_each_at_its_place() -> None:
    with pytest.raises(ScaffoldError) as caught:
        parse_inputs("x[0],\n y: strng,\n torch, x[N; bol]", INPUTS)
    places = [str(item.location) for item in caught.value.problems]
    assert places == [f"--inputs:{place}" for place in ("1:3", "2:5", "3:14", "3:2", "3:9")]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "x, s = 'a' if True else 'b'",
        "x, s = __import__('os').system('true')",
        "x, s = 1) -> None: pass  # ",
        "x, s: int = 1 # comment",
        "x, s: (lambda: 1)()",
        "x, s: tuple[int, ...][0]",
        "x, s: Literal[f'{1}']",
        "x, s: a.b(c)",
        "x, s: a[0].b",
        "x: int\ny",
        "x, s = f'{x}'",
        "x, s = b'a'",
        "x, s = {1: 2}",
        "x, s = " + "(" * 500 + ")" * 500,
        "x, s = " + "-" * 5000 + "1",
        "x, s: " + "int | " * 5000 + "int",
        "x, n = " + "9" * 5000,
    ],
)
def test_nothing_but_literals_and_listed_types_gets_in(text: str) -> None:
    with pytest.raises(ScaffoldError):
        parse_inputs(text, INPUTS)
