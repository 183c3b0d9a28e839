"""Questions of a test stub: those of `scaffold verify` the text of a Function says to ask.

A *question* is a function of the test file that checks one property of a Function besides its gradients: `backward_twice`,
`in_bfloat16`. It asks an object `Asked`, below as text, for the call. `stubs` writes both into the user's test file, but only the
questions it asks.

In: the facts of a Function; the source of all questions. Out: the names of its questions, and the part of the source that they need.
Invariant: a question that is left out of a test that runs, though it could be asked, has its reason.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.names import names_in
from scaffold.inspect.facts import Facts

# Asked of any Function.
ALWAYS = (
    *("grad_output_stays", "strided_grad_output", "expanded_grad_output"),
    *("two_calls_before_one_backward", "backward_twice", "outputs_are_freed"),
    *("gradient_with_create_graph", "checkpointed", "shapes_that_backward_returns"),
    "empty_inputs",
)
# Of a gradient that is the derivative, no surrogate: at other values, and in other layouts and dtypes.
DERIVED = ("scaled_grad_output", "second_derivative", "other_ranks", "other_sizes")
EXACT = ("strided_inputs", "in_float32", "in_bfloat16", "under_autocast")
# Of a Function that torch.func.vmap takes.
MAPPED = ("func_jacrev", "vmap_of_grad")
LEFT_OUT = "its gradient differs from the derivative on purpose, so its test leaves out gradcheck, the second derivative, twice the grad_output, float32, bfloat16, other sizes, autocast and vmap"


def questions_of(facts: Facts, rough: bool, compiled: bool) -> Iterator[str]:
    """Yield the names of the questions to ask of a Function, fit for its text.

    With a `rough` gradient, a surrogate, none is about derivatives (DERIVED, EXACT). `compiled`: ask about torch.compile too.
    `pure`: it surely changes no input in place. torch.func takes only a Function with a setup_context.
    """
    pure = facts.marked("mark_dirty") == frozenset()
    if pure:
        yield from ("inputs_stay", "input_changed_after_forward")
    yield from ALWAYS
    # Several outputs, or perhaps several.
    if any(item.length is None or item.length > 1 for item in facts.outputs):
        yield "one_output_alone"
    if rough:
        return
    yield from (*DERIVED, *EXACT)
    if pure and facts.function.setup_context is not None:
        yield "func_grad"
        if facts.function.generate_vmap_rule or "vmap" in facts.function.methods:
            yield from MAPPED
    if compiled:
        yield "compiled"


def definitions(source: str, test: str) -> str:
    """Return the text of the functions and constants of `source` that `test`, another text, reads, directly or through others.

    With the text of all questions as `source` a test file gets only those it asks. Imports and classes are left out.
    """
    known = {name: node for node in ast.parse(source).body for name in _defined(node)}
    wanted, left = set[str](), [*names_in([ast.parse(test)])]
    while left:
        name = left.pop()
        if name in known and name not in wanted:
            wanted.add(name)
            left += names_in([known[name]])
    parts = [
        ast.get_source_segment(source, node) or ""
        for name, node in known.items()
        if name in wanted
    ]
    return "\n\n\n".join(parts)


def _defined(node: ast.stmt) -> list[str]:
    """Return the names a top-level statement defines, by `def` or by an assignment."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [item.id for item in targets if isinstance(item, ast.Name)]


ASKED = '''\
Question = Callable[["Asked"], None]


class Asked(OpTests):
    """A Function with arguments that it takes, and what is told of it."""

    checkpoint: ClassVar[bool] = True
    random = True
    changed_in_place = ("as each Function says",)
    dtype = torch.double

    def __init__(
        self, apply: Callable[..., Any], arguments: Callable[[], list[tuple[Any, ...]]], case: int, names: str,
        function: Any, changed: bool = False, searched: bool = False, limits: Any = (), further: Any = (),
    ) -> None:
        """Take the arguments of one case; a Function may say that it changes them, and the case may have been found by trying."""
        self.searched, self.limits, self.further = searched and case > 0, limits, further
        given = arguments()[case]
        self.function, self.names = function, tuple(names.split(", "))
        self.dirty = self.changed_in_place = self.names if changed else ()
        self.differentiable = tuple(needing(self.names, given))

        def make(**_: Any) -> dict[str, Any]:
            return {k: x.detach() if isinstance(x, Tensor) else x for k, x in zip(self.names, arguments()[case], strict=True)}

        def op(*inputs: Any) -> tuple[Tensor, ...]:
            return tuple(x for x in as_tuple(apply(*inputs)) if isinstance(x, Tensor))

        self.make, self.op = make, op
        outputs = self.prepared(self.op)(*self.inputs())
        self.ends = tuple(at for at, x in enumerate(outputs) if x.requires_grad)
        if not self.ends:
            pytest.skip("no output has a gradient")
        self.single = computes_in_single(self.inputs(), lambda x: self.run(*x))
        self.rtol, self.atol = (1e-3, 1e-4) if self.single else (1e-6, 1e-7)
        self.differences = {"eps": 1e-2, "atol": 2e-2, "rtol": 2e-2} if self.single else {}

    def scaled(self, inputs: Sequence[Any], times: float) -> list[Any]:
        """Other values of what needs a gradient, as far as there are any; limits of a clamp stay positive."""
        factors = [abs(times) if name in self.limits else times for name in self.names]
        return [(n * x.detach()).requires_grad_() if needing(("x",), (x,)) else x for n, x in zip(factors, inputs)]

    def derivatives(self, inputs: Sequence[Any]) -> None:
        """These values, others, other arguments, and zeros, where there may be no derivative."""
        self.derivative(inputs, "these arguments")
        others = [(f"times {times}", self.scaled(inputs, times)) for times in (-1, 8, 1000)]
        for name, value in self.further:
            others.append((f"with {name}={value!r}", [value if k == name else x for k, x in zip(self.names, inputs)]))
        for words, other in others:
            if self.takes(other) and not self.single:
                self.derivative(other, f"these arguments, {words}")
        zeros = self.scaled(inputs, 0)
        lost = self.takes(zeros, backward=True) and any(x.isnan().any() for x in self.gradients(zeros, contiguous))
        if lost and not is_lost(self.function, zeros):
            self.wrong("a gradient is not a number where the inputs are 0")

    def resized(self, empty: bool) -> Iterator[Sequence[Any]]:
        """Each size of a dim becomes 0; or all grow, even ones to even ones, and then each becomes 1."""
        usual = self.inputs()
        sizes = sorted({n for x in usual if isinstance(x, Tensor) for n in x.shape})
        alone = [{n: 0 if empty else 1} for n in sizes]
        for new in alone if empty else ({n: n + 2 for n in sizes}, *alone):
            yield [drawn(x, tuple(new.get(n, n) for n in x.shape)) if isinstance(x, Tensor) else x for x in usual]

    def takes(self, inputs: Sequence[Any], backward: bool = False) -> bool:
        try:
            outputs = self.prepared(self.op)(*inputs)
            if backward:
                self.gradients(inputs, ones)
        except Exception:
            return False
        return all(bool(x.isfinite().all()) for x in outputs)

    def gradients(self, inputs: Sequence[Any], weights: Any, outputs: Any = None, **options: Any) -> tuple[Tensor, ...]:
        ends = self.run(*inputs) if outputs is None else outputs
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        return torch.autograd.grad(ends, needed, [weights(end.detach()) for end in ends], materialize_grads=True, **options)

    def returned(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self.searched:
            self.skip("its shapes were found by trying: they may broadcast by chance")
        noted: list[Any] = []

        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            noted.append(self.function.backward(ctx, *grad_outputs))
            return noted[-1]

        recorder: Any = type("Recorder", (self.function,), {"backward": staticmethod(backward)})
        outputs = as_tuple(self.prepared(recorder.apply)(*inputs))
        ends = [x for x in outputs if isinstance(x, Tensor) and x.requires_grad]
        self.gradients(inputs, contiguous, ends)
        return as_tuple(noted[0])

    def derivative(self, inputs: Sequence[Any], words: str) -> None:
        most = sum(float(x.detach().abs().sum()) for x in self.run(*inputs))
        near = self.differences or {"atol": 1e-5 + 1e-8 * most}  # less is rounding
        try:
            assert gradcheck(self.run, inputs, **near)
        except RuntimeError as error:
            raise AssertionError(f"the gradient is not the derivative for {words}: {error}") from error

    def hold(self, inputs: Sequence[Any], found: Any, expected: Any, words: str, hint: str = "") -> None:
        for name, *pair in zip(needing(self.names, inputs), found, expected):
            near = {"rtol": self.rtol, "atol": self.atol, "equal_nan": True}
            assert_close(*pair, **near, msg=lambda text, name=name: f"grad_{name}: {words.format('differs')}; {hint}\\n{text}")

    def wrong(self, words: str, place: str = "backward", hint: str = "") -> NoReturn:
        pytest.fail("; ".join(filter(None, (words, hint))))

    def raised(self, error: Exception, words: str) -> NoReturn:
        raise error

    def skip(self, reason: str, error: BaseException | None = None, hint: str = "") -> NoReturn:
        pytest.skip("; ".join(str(x) for x in (reason, error, hint) if x))

    def note(self, words: str, error: BaseException | None = None) -> None:
        self.skip(words, error)

    def answer(self, question: Callable[[], None], words: str, place: str = "backward", hint: str = "") -> None:
        try:
            question()
        except AssertionError as error:
            raise AssertionError(f"{words}; {hint}") from error
'''
