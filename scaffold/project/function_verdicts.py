"""Verdicts on hand-written Functions, for `scaffold verify FILE::CLASS`: is the backward the gradient of the forward?

A process of its own runs the Function and checks it; here the request to it is made from the Function's text, and its answer taken.
In: a Function, and the user's statements about its inputs and reference. Out: the `Verdict` of a process that ran it.
Invariant: its module is imported in that process alone. Inputs declared by the user are the ones tried; otherwise they are
declared as the Function's text suggests, with shapes it accepts.

Words: to *declare* inputs is to say them as `--inputs` does, `x[N, D], eps: float`; a *way* is one of several possible
declarations, tried until the forward accepts one; an *entry* is one input of a way; *checks* is a generated module
like an op's tests, with the inputs of a declaration; *facts* are what the text of the Function says (`inspect.facts`).
"""

import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from scaffold.derive import derive
from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.inspect import Function
from scaffold.inspect.declared_inputs import (
    Entry,
    numbers_in,
    other_arguments,
    ways_to_declare,
)
from scaffold.inspect.facts import Facts
from scaffold.inspect.surrogates import says_so
from scaffold.inspect.trial_inputs import shapes_for, with_vectors
from scaffold.project.configuration import configuration_here
from scaffold.project.hand_written import Meant, dotted
from scaffold.project.specification import read_options
from scaffold.render.file_style import PLAIN
from scaffold.render.op_testing import op_testing_draft
from scaffold.render.verification import Verification, verification
from scaffold.spec import TensorInput, is_size_name
from scaffold.spec.build import build
from scaffold.spec.signature import parse_inputs
from scaffold.verify import Failure, Request, Verdict
from scaffold.verify.processes import ChildProcess, listen, work_through
from scaffold.verify.prover import HandWritten, Place, Prover

NAME = "verified"
INPUTS = Location("--inputs")
NAMED = re.compile(r"@?.+:[A-Za-z_][\w.]*")


class Stated(NamedTuple):
    """The options of `scaffold verify` stated for a Function."""

    inputs: str | None = None  # `--inputs 'x[N, D]'`
    reference: str | None = None  # `FILE:name` of a function it must agree with
    samples: str | None = None  # `@FILE:name` of a function giving its arguments
    compiled: bool = False  # check torch.compile as well


class Unwritten(NamedTuple):
    """An op that is not on disk yet: the texts it is imported from, and its Function among them."""

    texts: Request  # its modules, and the path of those they import
    place: Place


class Question(NamedTuple):
    """A Function to be judged, with its options.

    With an op made of it, that is judged in its place: its inputs are the Function's, whose text tells more about them.
    """

    meant: Meant
    function: Function
    stated: Stated
    op: Unwritten | None = None


class Declared(NamedTuple):
    """A declaration of inputs, as for `--inputs`, and conditions on their sizes, as for `--require`: "N > D"."""

    inputs: str
    conditions: tuple[str, ...] = ()


class Judge:
    """A process judging one Function after another, and the state of the current judgement: `ask`, then `hear` until `result` is set.

    Of undeclared inputs only the number of dims may be wrong: the process then searches shapes the forward accepts, and reports these
    in place of a judgement; the Function is asked about once more, declared with them. `work_through` runs several such processes.
    """

    def __init__(self, prover: Prover) -> None:
        """Take the process to ask, which may not be started yet."""
        self._prover = prover
        self._asked: Question | None = None
        # The request now running is the second, with found shapes.
        self._searched = False
        self.result: Verdict | None = None
        self.deadline = 0.0  # of the current request

    @property
    def process(self) -> ChildProcess | None:
        """Return the process it runs in."""
        return self._prover.process

    def ask(self, question: Question) -> None:
        """Start judging a Function; `result` is set at once, to a failure, if it has no forward or its inputs cannot be declared.

        Raise ScaffoldError if the inputs stated by the user are invalid.
        """
        self._asked, self._searched, self.result = question, False, None
        if question.function.forward is None:
            self._refuse("its forward is inherited from another file")
            return
        if question.stated.inputs is not None:
            self._prover.ask(_request(question, _orders(question.stated.inputs)))
        else:
            try:
                ways = [Declared(_joined(way)) for way in _ways(question)]
                request = _request(question, ways)
            except ScaffoldError as error:  # a name no input may have
                self._refuse(error.message)
                return
            self._prover.ask(request)
        self._take()

    def _refuse(self, words: str) -> None:
        """Set the verdict to a failure of the inputs, with the reason."""
        self.result = Verdict(0, Failure("inputs", words))

    def hear(self) -> None:
        """Read the process's output; `result` is set when the verdict is complete."""
        self._prover.hear()
        self._take()

    def _take(self) -> None:
        """Set `result` to the process's verdict, if it has one; if that has found shapes instead, ask again with these, once.

        `found.chosen` is the way of declaring the inputs, by index, that the shapes were found for.
        """
        found, self.deadline = self._prover.result, self._prover.deadline
        if found is None or self._asked is None:
            return
        # Shapes in the second answer would be asked about for ever.
        if not found.shapes or self._searched:
            self.result = found
            return
        self._searched = True
        text = _joined(_ways(self._asked)[found.chosen], found.shapes)
        way = Declared(text, (*found.conditions,))
        request = _request(self._asked, [way], searched=True)
        self._prover.ask(request)
        self.deadline = self._prover.deadline

    def close(self) -> None:
        """End the process."""
        self._prover.close()


def judge(
    questions: Iterable[Question], python: str, limit: float, processes: int
) -> Generator[Verdict, None, None]:
    """Yield the verdicts in the order of the questions; several processes work through them, each with a time limit a question."""
    return work_through(questions, lambda: Judge(Prover(python, limit)), processes)


def judged(question: Question, prover: Prover) -> Verdict:
    """Return the verdict of a process on one Function; it may be asked other things afterwards."""
    judge = Judge(prover)
    judge.ask(question)
    while judge.result is None:
        listen([judge])
    return judge.result


def _ways(question: Question) -> tuple[tuple[Entry, ...], ...]:
    """Return the ways to declare the inputs as the Function's text suggests, the likeliest first; the same in each call."""
    return ways_to_declare(Facts(question.function, question.meant.module))


def _orders(inputs: str) -> list[Declared]:
    """Return the stated inputs twice, so a forward that needs N > D finds such sizes: by default later names get larger sizes.

    For 'x[N, D]' the second declaration adds the condition "N > D"; the process tries it if the forward refuses the first.
    """
    items = parse_inputs(inputs, INPUTS)
    shapes = (x.dims or () for x in items if isinstance(x, TensorInput))
    names = dict.fromkeys(filter(is_size_name, chain.from_iterable(shapes)))
    falling = (f"{one} > {two}" for one, two in pairwise(names))
    return [Declared(inputs), Declared(inputs, (*falling,))]


def _request(
    question: Question, ways: Sequence[Declared], *, searched: bool = False
) -> Request:
    """Return the request to judge a Function with the first of these declarations, `ways`, its forward accepts.

    Invalid ones are left out; raise their errors if none is valid. `searched`: their shapes were found by an earlier run.
    """
    meant, function, stated, op = question
    facts, path = Facts(function, meant.module), meant.path
    problems: list[ScaffoldError] = []
    rendered: list[Verification] = []
    names, declared = _names(facts, stated), bool(stated.inputs or stated.samples)
    for way in ways:
        try:
            rendered.append(_rendered(*way))
        except ScaffoldError as error:
            problems += error.problems
    if not rendered:
        raise_all(problems)
    place = _place(path, facts.function.qualname)
    known = HandWritten(
        place=place,
        names=names,
        candidates=tuple(one.checks for one in rendered),
        reference=_named(stated.reference),
        samples=_named(stated.samples),
        lines=lines_of(facts),
        dirty=tuple(sorted(facts.marked("mark_dirty") or ())),
        numbers=numbers_in(facts),
        arguments=other_arguments(facts, ways_to_declare(facts)[-1]),
        surrogate_stated=says_so(facts),
        searched=searched,
        shapes=() if declared else (*with_vectors(names), *shapes_for(names)),
        declared=declared,
        compiled=stated.compiled,
        questions=op_testing_draft(PLAIN),
    )
    beside = os.path.dirname(os.path.abspath(path))
    # The checks import an op, but the Function is judged in its place: any one will do.
    request = Request(rendered[0].op, "", path=(beside,), function=known)
    return request if op is None else _of_op(request, op)


def _of_op(request: Request, op: Unwritten) -> Request:
    """Return the request to judge an op instead of the Function, by the inputs of the Function."""
    known = request.function and request.function._replace(place=op.place)
    path = (*op.texts.path, *request.path)
    return request._replace(path=path, modules=op.texts.modules, function=known)


def _names(facts: Facts, stated: Stated) -> tuple[str, ...]:
    """Return the names the checks know the inputs by, in the order of forward, a variadic one with its "*".

    They are the forward's own, unless the stated inputs have others: then these, matched by position. Raise ScaffoldError if there are
    more or fewer.
    """
    own = tuple(
        "*" * (item.passing == "variadic") + item.name
        for item in facts.inputs
        if item.passing in ("positional", "variadic")
    )
    if stated.inputs is None:
        return own
    declared = tuple(item.name for item in parse_inputs(stated.inputs, INPUTS))
    # The user may state them in another order: the names tell which is which.
    if set(declared) == {name.removeprefix("*") for name in own}:
        return own
    if len(declared) != len(own):
        hint = f"the inputs of its forward: {', '.join(own)}"
        words = f"{len(declared)} inputs are given, but its forward takes {len(own)}"
        raise ScaffoldError(words, INPUTS, hint)
    return declared


def _rendered(text: str, conditions: Sequence[str]) -> Verification:
    """Return the module of checks for inputs as in `--inputs`, with conditions on their sizes; raise ScaffoldError if one is invalid.

    An op without a forward and with these inputs is specified: the module of checks of an op is rendered from its specification.
    """
    required = {"require": [*conditions]} if conditions else {}
    # The default name of an output, "output", may be an input's.
    taken = any(item.name == "output" for item in parse_inputs(text, INPUTS))
    named = {"outputs": "result"} if taken else {}
    given = read_options({"inputs": text, "module": False, **required, **named})
    raise_all(given.problems)
    spec = build(NAME, given.raw, given.locate)
    return verification(spec, derive(spec), frozenset())  # no gradient is derived


def _joined(entries: Sequence[Entry], shapes: Mapping[str, str] | None = None) -> str:
    """Return entries as a value of `--inputs`, 'x[N, D], eps: float = 1e-5'; `shapes` has dims, "N, D", by input.

    Entries with a default go last, as in a signature, and a variadic one after them.
    """
    ordered = sorted(entries, key=lambda one: (bool(one.value), one.variadic))
    return ", ".join(one.text((shapes or {}).get(one.name)) for one in ordered)


def _place(path: str, name: str) -> Place:
    """Return the place of the definition `name` in a file: the module to import, its file, the import root, its name."""
    module, root = dotted(path, configuration_here())
    return Place(module, os.path.abspath(path), str(root), name)


def unnamed(stated: Stated) -> list[ScaffoldError]:
    """Return the problems of `--reference file.py:name` and `--samples @file.py:name` without a name or an existing file; [] if none."""
    said = {"--reference": stated.reference, "--samples": stated.samples}
    problems = []
    for option, text in said.items():
        path = (text or "").rpartition(":")[0].removeprefix("@")
        if text and not NAMED.fullmatch(text):
            hint = f"write: {option} {'@' * (option == '--samples')}file.py:name"
            message = f"'{text}' does not name a file and a function in it"
            problems.append(ScaffoldError(message, Location(option), hint))
        elif text and not os.path.isfile(path):
            message = f"there is no file '{path}'"
            problems.append(ScaffoldError(message, Location(option)))
    return problems


def _named(text: str | None) -> Place | None:
    """Return the place of the user's function named by `FILE:name` or `@FILE:name`, an option; None without text."""
    if not text:
        return None
    path, _, name = text.removeprefix("@").rpartition(":")
    return _place(path, name)


def lines_of(facts: Facts) -> dict[str, int]:
    """Return the lines to report faults at, by part of the Function: "class", "forward", "backward", "saves", "grad_x"."""
    return dict(_lines(facts))


def _lines(facts: Facts) -> Iterator[tuple[str, int]]:
    """Yield each part of the Function with its line, so a failed check can name the line to mend.

    Parts are "class", "forward", "forward changes" (in place), "saves", "grad_x", ...; the line of a gradient is its expression's, else
    that of the last `return` of the backward.
    """
    function = facts.function
    line = function.node.lineno
    yield "class", line
    methods = {"forward": function.forward, "backward": function.backward}
    for name, method in methods.items():
        # A method may be inherited: then the class is the place.
        yield name, method.node.lineno if method else line
        changes = facts.changes(method) if method else ()
        if changes:
            yield f"{name} changes", getattr(changes[0].node, "lineno", line)
    saver = function.saver
    if saver is not None and saver.ctx is not None:
        # Attributes, `ctx.scale = scale`, then tensors, `ctx.save_for_backward(x)`.
        saved = [item.step.statement for item in facts.kept(saver)]
        saved += [
            item.step.statement
            for item in facts.context_calls(saver, "save_for_backward")
        ]
        if saved:
            yield "saves", saved[0].lineno
    returns = [item.step.statement.lineno for item in facts.gradients]
    for item in facts.inputs:
        gradients = facts.gradient_of(item.name) or ()
        lines = [node.lineno for node in gradients if hasattr(node, "lineno")]
        # No `return` at all: then the line of the backward will do.
        if lines or returns:
            yield f"grad_{item.name}", (lines or returns)[-1]
