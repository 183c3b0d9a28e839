"""What a test stub asks of a Function beside gradcheck: that it does as training wants it, and as `scaffold verify` asks.

In: the facts of a Function. Out: the questions for it, why others are left out, and the functions that ask, as source.
Invariant: a question that is left out of a test that runs, though it could be asked, has its reason.
"""

import re
from collections.abc import Iterator

from scaffold.inspect.facts import Facts

ALWAYS = (
    *("grad_output_stays", "strided_grad_output", "expanded_grad_output"),
    *("two_calls_before_one_backward", "backward_twice"),
)
LEFT_OUT = "its gradient is meant to be another one than the derivative: not asked for are gradcheck, the second derivative and twice the grad_output"


def questions_of(facts: Facts, rough: bool) -> Iterator[str]:
    """Yield the names of the functions that check a Function."""
    if facts.marked("mark_dirty") == frozenset():
        yield "inputs_stay"
    yield from ALWAYS
    if any(item.length is None or item.length > 1 for item in facts.outputs):
        yield "one_output_alone"
    if not rough:
        yield "scaled_grad_output"
        yield "second_derivative"


HELPERS = ("outputs_of", "weights_of", "gradients_of", "laid", "hold")
ASKED = "Asked = Callable[[Callable[..., Any], tuple[Any, ...]], None]"
TEXT = '''\
def outputs_of(apply: Callable[..., Any], given: tuple[Any, ...]) -> list[torch.Tensor]:
    """The outputs that have a gradient; where random numbers are drawn, the same ones each time."""
    torch.manual_seed(0)
    found = apply(*given)
    several = found if isinstance(found, tuple) else (found,)
    return [x for x in several if isinstance(x, torch.Tensor) and x.requires_grad]


def weights_of(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """A grad_output for each output, of a fixed seed."""
    seed = torch.Generator().manual_seed(1)
    drawn = [torch.rand(x.shape, dtype=x.dtype, generator=seed) for x in outputs]
    return [0.5 + x.to(y.device) for x, y in zip(drawn, outputs, strict=True)]


def gradients_of(
    outputs: list[torch.Tensor], given: tuple[Any, ...], weights: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The gradients of the arguments that need one; the outputs can be used again."""
    needed = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    found = torch.autograd.grad(
        outputs, needed, weights, retain_graph=True, allow_unused=True
    )
    pairs = zip(found, needed, strict=True)
    return [torch.zeros_like(y) if x is None else x for x, y in pairs]


def laid(
    apply: Callable[..., Any],
    given: tuple[Any, ...],
    layout: Callable[[torch.Tensor], torch.Tensor],
) -> list[torch.Tensor]:
    """The gradients of a call of its own, for grad_outputs that are laid out like that."""
    outputs = outputs_of(apply, given)
    return gradients_of(outputs, given, [layout(x) for x in weights_of(outputs)])


def hold(found: list[torch.Tensor], wanted: list[torch.Tensor], fault: str) -> None:
    """Fail with the fault where two lists of tensors differ."""
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, msg=lambda text: f"{fault}\\n{text}")


def inputs_stay(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    before = [x.detach().clone() for x in tensors]
    laid(apply, given, torch.clone)
    after = [x.detach() for x in tensors]
    hold(after, before, "an input is changed in place, and not marked as dirty")


def grad_output_stays(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    outputs = outputs_of(apply, given)
    weights, before = weights_of(outputs), weights_of(outputs)
    gradients_of(outputs, given, weights)
    hold(weights, before, "backward changes grad_output in place: clone it first")


def strided_grad_output(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    found = laid(apply, given, lambda x: torch.stack([x, x], -1)[..., 0])
    fault = "backward takes a strided grad_output for a contiguous one"
    hold(found, laid(apply, given, torch.clone), fault)


def expanded_grad_output(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    found = laid(apply, given, lambda x: x.new_ones(()).expand(x.shape))
    fault = "backward takes an expanded grad_output, as of .sum(), for a contiguous one"
    hold(found, laid(apply, given, torch.ones_like), fault)


def scaled_grad_output(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    found = laid(apply, given, lambda x: 2 * x)
    wanted = [2 * x for x in laid(apply, given, torch.clone)]
    hold(found, wanted, "for twice the grad_output the gradient is not twice as large")


def one_output_alone(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    for place in range(len(outputs_of(apply, given))):
        outputs = outputs_of(apply, given)
        weights = [torch.zeros_like(x) for x in outputs]
        weights[place] = weights_of(outputs)[place]
        wanted = gradients_of(outputs, given, weights)
        alone = outputs_of(apply, given)[place]
        found = gradients_of([alone], given, [weights[place]])
        hold(found, wanted, f"another gradient where output {place} alone is used")


def two_calls_before_one_backward(
    apply: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    wanted = laid(apply, given, torch.clone)
    outputs = outputs_of(apply, given)
    other = [
        (0.9 * x.detach()).requires_grad_(x.requires_grad)
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
        for x in given
    ]
    outputs_of(apply, tuple(other))
    found = gradients_of(outputs, given, weights_of(outputs))
    hold(found, wanted, "a second call changes the gradient of the first one")


def backward_twice(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    outputs = outputs_of(apply, given)
    first = gradients_of(outputs, given, weights_of(outputs))
    again = gradients_of(outputs, given, weights_of(outputs))
    hold(again, first, "a second backward gives another gradient")


def second_derivative(apply: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """It is right, or refused as @once_differentiable refuses it."""
    outputs = outputs_of(apply, given)
    needed = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    weights = [x.requires_grad_() for x in weights_of(outputs)]
    firsts = torch.autograd.grad(
        outputs, needed, weights, create_graph=True, allow_unused=True
    )
    recorded = [x.sum() for x in firsts if x is not None and x.requires_grad]
    try:
        if recorded:
            torch.stack(recorded).sum().backward()
    except RuntimeError as error:
        refused = "once_differentiable", "differentiate twice", "differentiable once"
        if any(words in str(error) for words in refused):
            return
        raise
    assert gradgradcheck(apply, given, raise_exception=False), (
        "the second derivative is silently wrong: mark backward as once_differentiable, "
        "or save inputs and outputs alone"
    )
'''


def asking(body: str) -> str:
    """Return the source of the checks that the tests name, and of the helpers they call."""
    parts = (part.strip("\n") for part in TEXT.split("\n\n\n"))
    named = [
        part
        for part in parts
        if part.partition("(")[0].removeprefix("def ") in (*HELPERS, *_words(body))
    ]
    return "\n\n\n".join((*named, ASKED))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
