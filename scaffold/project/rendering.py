"""Rendering of an op's files: from its specification to a derivation and texts, for one op or many.

It joins the stages `spec` -> `derive` -> `render`: `generate` and its like for a single op not written yet (`new-op`, `adopt`, the API),
`render_ops` for the ops of a manifest (`sync`, `check`), whose files `update` then compares with those on disk.
In: options and settings by key, or a `Project` and its ops. Out: the generated files, with the texts
to run as their proof; nothing is written.
Invariant: the texts do not depend on the number of processes; a problem of one op hides none of another's.

Words: a *derivation* is an op's forward with the gradients found for it; a *draft* is a text not formatted yet: its digest tells later if a
file has to be written anew; *layers* are a team's directories of templates; a *proof* holds for a specification and the code
of a Function, by their digests; *known* proofs are those on record and those made in this run.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from scaffold.derive import Derivation, derive, zero_gradients
from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.project.console import Console
from scaffold.project.places import Places, headed, refuse_sources
from scaffold.project.specification import (
    Companion,
    Files,
    Merged,
    Reader,
    Said,
    Specified,
    Values,
    specification,
    specified,
    specified_keys,
    specified_table,
)
from scaffold.render.environment import keep_compiled
from scaffold.render.file_style import House
from scaffold.render.files import drafts
from scaffold.render.imports import one_style
from scaffold.render.kernel_file import kernel_modules
from scaffold.render.layout import layout
from scaffold.render.module import init_arguments
from scaffold.render.opfile import function_text
from scaffold.render.parameters import dims_of, reset_lines, size_arguments
from scaffold.spec import Configuration, OpSpec
from scaffold.spec.imports import newer_of, runs_code_of
from scaffold.spec.manifest import Listed, proof_digest, text_digest
from scaffold.spec.problems import Locate
from scaffold.spec.requirements import check_reason
from scaffold.spec.toml import Entry
from scaffold.workspace import store
from scaffold.workspace.reconcile import Wanted
from scaffold.workspace.records import Proof, function_digest, meaning_digest

if TYPE_CHECKING:
    from scaffold.project.project import Project

Text = TypeVar("Text")
Known = Mapping[str, tuple[Proof, ...]]  # of each op


class Made(NamedTuple):
    """The derivation and files of an op: the op's own file first, then those of its test and kernels, if any."""

    derivation: Derivation
    files: tuple[Wanted, ...]
    notes: tuple[str, ...]


class Setting(NamedTuple):
    """The settings shared by every op of a run."""

    configuration: Configuration
    places: Places
    formatted: bool = True  # False: texts are "", only digests of drafts are made
    proving: bool = False  # find or prepare a proof, too
    # Files of formulas that the same run writes, by absolute path.
    unwritten: Mapping[str, str] = MappingProxyType({})


def make(
    spec: OpSpec, setting: Setting, locate: Locate, manifest: str | None = None
) -> Made:
    """Derive an op and render its files; the one way from a specification to texts, for every command.

    `manifest` is named in the files' header; None: there is none. `locate` gives the place of a key, for errors. Raise ScaffoldError if
    the op has not what the project requires of every op, or its file would replace the tests' shared module.
    """
    start_rendering()
    derivation = derive(spec)
    configuration, places = setting.configuration, setting.places
    once = derivation.once_differentiable  # a project may require a reason for it
    check_reason(configuration.require, spec, once, locate)
    house = places.house
    if manifest is not None:
        house = headed(house, configuration, manifest)
    _refuse_shared(spec, places, locate)
    texts = within_limits(
        house, lambda: drafts(spec, derivation, places.directories, house)
    )
    shown = dict.fromkeys(texts, "")
    if setting.formatted:
        shown = places.formatter(texts, places.directories.line_length)
    places_of = layout(spec.name, places.directories)
    # Any other file is the op's own.
    roles = {places_of.test_path: "test", places_of.triton_path: "triton"}
    files = tuple(
        Wanted(roles.get(path, "op"), path, text_digest(one_style(draft)), shown[path])
        for path, draft in texts.items()
    )
    return Made(derivation, files, notes_of(spec, derivation))


def within_limits(house: House, render: Callable[[], Text]) -> Text:
    """Return the result of `render`; with a team's templates it runs in a process with limits of time and memory.

    A template is a program of the team's, and may never end; raise ScaffoldError at a limit.
    """
    if not house.templates.layers:
        return render()
    from scaffold.verify.limits import LimitReached, limited

    try:
        return limited(render)
    except LimitReached:
        raise _beyond_limits(house) from None


def function_shown(spec: OpSpec, derivation: Derivation, places: Places) -> str:
    """Return the formatted text of an op's Function alone, to show it in a notebook or a report."""
    length, house = places.directories.line_length, places.house
    return within_limits(house, lambda: function_text(spec, derivation, length, house))


def _beyond_limits(house: House) -> ScaffoldError:
    """Return the error for a team's templates over the limits of `within_limits`; which one it was is not known."""
    from scaffold.verify.limits import SECONDS

    found = sorted({source.path for source in house.templates.sources})
    message = f"rendering took more than {SECONDS} seconds, or was killed"
    hint = f"look for loops that make ever larger values in {', '.join(found)}"
    return ScaffoldError(message, Location(found[0]), hint)


def _refuse_shared(spec: OpSpec, places: Places, locate: Locate) -> None:
    """Raise ScaffoldError if the op's file or module would replace `op_testing`, imported by all tests."""
    shared, own = places.directories.op_testing, layout(spec.name, places.directories)
    if shared is None:  # each test holds all of its code
        return
    # A module of that name elsewhere would be imported in its place, so the name alone is refused, too.
    if own.module != shared.module and shared.path not in (own.op_path, own.test_path):
        return
    message = f"the op's file would overwrite '{shared.path}', which all tests import"
    hint = "rename the op, or that file: [tool.scaffold.testing] file"
    raise ScaffoldError(message, locate(("name",)), hint)


def start_rendering() -> None:
    """Let templates be compiled once and kept on disk, as compiling takes longer than rendering; call it before anything is rendered."""
    from scaffold.render.compiled import CompiledTemplates  # this imports jinja2

    keep_compiled(CompiledTemplates(store))


# --- One op, from options or from an unwritten table.


class Generated(NamedTuple):
    """The texts of an op, not written yet, and notes on them."""

    specified: Specified
    derivation: Derivation
    written: tuple[Wanted, ...]
    notes: tuple[str, ...]
    manifest: str | None = None  # the target manifest; None: none, or unknown yet
    proof: Proof | None = None  # of the code run; its `spec` is added later
    companions: tuple[Companion, ...] = ()
    proven: str = ""  # summary of the proof, for people

    @property
    def spec(self) -> OpSpec:
        return self.specified.spec

    @property
    def root(self) -> Path:
        return self.specified.places.root

    @property
    def files(self) -> dict[str, str]:
        """Return the texts by their path below the root."""
        return {item.path: item.text for item in self.written}

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the parts left for the user to write."""
        return missing_of(self.spec, self.derivation)


def generate(
    name: str, values: Values, settings: Values, found: list[ScaffoldError]
) -> Generated:
    """Return the files of an op given by options, for `new-op`; `found` are problems known to the caller, raised together with the op's.

    `values` are its keys, `settings` the options of the run, as for `specification.specified`.
    """
    asked = specified(name, values, settings, found)
    return _generated(asked, printed=bool(settings.get("stdout")))


def generate_keys(said: Said, settings: Values, unwritten: Files) -> Generated:
    """Return the files of an op given by keys outside any file, for the Python API; `unwritten` are texts to read in place of files."""
    return _generated(specified_keys(said, settings, unwritten), printed=True)


def generate_table(
    name: str,
    said: Merged,
    settings: Values,
    companions: Callable[[Places], tuple[Companion, ...]],
) -> Generated:
    """Return the files of an op given by a table not written yet, for `adopt`; `companions` makes the files its formulas name."""
    specified, beside = specified_table(name, said, settings, companions)
    return _generated(specified)._replace(companions=beside)


def _generated(specified: Specified, printed: bool = False) -> Generated:
    """Return the texts of a specified op, and notes on them; `printed`: they go to stdout, and no manifest lists the op.

    Raise ScaffoldError if a text would overwrite a file its formula comes from.
    """
    spec, places = specified.spec, specified.places
    manifest = None
    if specified.joins and not printed:
        from scaffold.project.project import new_manifest

        manifest = new_manifest(specified.configuration, spec.name)
    setting = Setting(specified.configuration, places)
    made = make(spec, setting, specified.locate, manifest)
    paths = [item.path for item in made.files]
    refuse_sources(places.root, paths, specified.reads.paths)
    without_gain = _without_gain(specified, made.derivation)
    undeclared = _undeclared_parameters(spec) if specified.inferred else []
    notes = (*inferred_note(specified), *undeclared, *made.notes, *without_gain)
    return Generated(specified, made.derivation, made.files, notes, manifest)


def inferred_note(specified: Specified) -> tuple[str, ...]:
    """Return notes on inputs and other keys inferred from the forward: the user has to see what was not stated.

    Of an nn.Module also how the generated module differs: it may be missing (`lost`: initial values we cannot write), start parameters in
    another way (`unkept`), take arguments in another order, or have other names in its state_dict (`of_members`).
    """
    known = specified.inferred
    if known is None:
        return specified.completed
    named = (("parameters", known.params), ("buffers", known.buffers))
    owned = [f"{what}: {', '.join(names)}" for what, names in named if names]
    shown = f" ({'; '.join(owned)})" if owned else ""
    notes = [f"inputs taken from the forward: {known.inputs}{shown}"]
    if known.stated:  # the user's inputs, of an nn.Module: only the rest is inferred
        said = f"the module is that of the file{shown}"
        notes = [said] if owned and specified.spec.module is not None else []
        notes += known.notes
    if known.lost:
        said = f"no module: the tool cannot copy how __init__ sets up {', '.join(known.lost)}"
        first, is_buffer = known.lost[0], known.lost[0] in known.buffers
        one = f"--init '{first}=...'"
        if is_buffer:
            one = f"--buffers {first}, and fill it where the module is made: it starts as zeros"
        notes.append(f"{said}; to get one, state {one}")
    if known.unkept and specified.spec.module is not None:
        names = ", ".join(known.unkept)
        said = f"how __init__ starts {names} is not taken over"
        notes.append(
            f"{said}: edit reset_parameters, or state --init '{known.unkept[0]}=...'"
        )
    notes += _reordered_note(specified.spec, known.made_by)
    if known.of_members and specified.spec.module is not None:
        notes.append(
            f"the names in its state_dict have no dots ({known.of_members[0]}): load one of the file's module as "
            "{name.replace('.', '_'): value for name, value in state.items()}"
        )
    return (*notes, *specified.completed)


def _undeclared_parameters(spec: OpSpec) -> list[str]:
    """Return a note if a parameter starts at random numbers because its shape is not declared; [] otherwise.

    One with a declared `weight[D]` starts at ones, as in a norm; of an unknown shape the constructor takes it, and the values are random.
    """
    if spec.module is None:
        return []
    random = [
        name
        for name in spec.module.parameters
        if dims_of(spec, name) is None
        and f"nn.init.normal_(self.{name})" in reset_lines(spec, spec.module)
    ]
    if not random:
        return []
    taken = " and ".join(name for name, _ in size_arguments(spec, spec.module))
    listed = " and ".join(random)
    mend = f"declare the shape, as {random[0]}[D], and it starts at ones"
    return [f"the module takes {taken}, and {listed} starts at random numbers: {mend}"]


def _reordered_note(spec: OpSpec, made_by: Sequence[str]) -> list[str]:
    """Return a note if the generated module takes its arguments in another order than the file's class, by `made_by`; [] otherwise."""
    if spec.module is None:
        return []
    given = [item.partition(":")[0] for item in init_arguments(spec, spec.module)]
    taken = list(takewhile(lambda item: item != "*", given))  # the positional ones
    # Compared as far as both have arguments: further ones do no harm.
    if not made_by or all(map(str.__eq__, taken, made_by)):
        return []
    listed = f"({', '.join(taken)}), __init__ ({', '.join(made_by)})"
    return [f"the module takes {listed}: give them by name"]


def _without_gain(specified: Specified, derivation: Derivation) -> tuple[str, ...]:
    """Return a note if `--save-policy balanced` (save values rather than recompute) has no effect on this op; () otherwise."""
    asked = specified.raw.get("save-policy") == "balanced" and derivation.derived
    # `intermediates`: it saves something, as was asked.
    if not asked or derivation.intermediates or derivation.once_differentiable:
        return ()
    return ("balanced saves no more than recompute: nothing is gained by it",)


def missing_of(spec: OpSpec, derivation: Derivation) -> tuple[str, ...]:
    """Return the parts left for the user to write: "forward", and `grad_x` for each input without a gradient."""
    forward = ("forward",) if derivation.forward is None else ()
    named = (
        item.name for item in spec.differentiable if item.name in derivation.missing
    )
    return (*forward, *(f"grad_{name}" for name in named))


def _unread(spec: OpSpec) -> list[str]:
    """Return the inputs no formula reads, the gradients' and the module's updates among them: each gets a note. [] without a forward."""
    if spec.forward is None:
        return []
    # A surrogate may be stated as a forward of its own, to be differentiated instead.
    other = spec.surrogate.forward if spec.surrogate else None
    stated = (spec.forward, other, spec.backward, *(one for _, one in spec.gradients))
    updates = spec.module.updates if spec.module else ()
    formulas = (*stated, *(one for _, one in updates))
    read = frozenset[str]().union(*(one.names() for one in formulas if one))
    return [item.name for item in spec.inputs if item.name not in read]


def _constant(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return the inputs with a derivative of zero everywhere, as of `x.round()`: perhaps a mistake, to be noted.

    [] if `detach` in the forward shows the intention.
    """
    if spec.forward is None:
        return []
    parts = spec.forward.nodes()
    if any("detach" in part.label for part in parts):
        return []
    unread = {*_unread(spec)}
    # An unread input has a note of its own.
    flat = zero_gradients(derivation) - unread
    return [item.name for item in spec.tensors if item.name in flat]


def notes_of(spec: OpSpec, derivation: Derivation) -> tuple[str, ...]:
    """Return notes on an op for the user: assumed shapes, unread inputs, decisions of the derivation, parts left to write."""
    missing = missing_of(spec, derivation)
    notes = []
    if spec.conventional:
        shapes = (
            f"{name}[{', '.join(map(str, dims))}]" for name, dims in spec.conventional
        )
        notes.append(f"conventional shapes: {', '.join(shapes)}")
    notes += [f"the forward never reads '{name}'" for name in _unread(spec)]
    notes += [
        f"grad_{name} is zero everywhere; one that is meant to differ from the derivative is stated: "
        f"--grad '{name}=grad_output' --surrogate"
        for name in _constant(spec, derivation)
    ]
    notes += derivation.notes
    notes += _of_kernels_under_autocast(spec, derivation)
    notes += [f"'{name}' is not in the table of operators" for name in newer_of(spec)]
    if missing:
        notes.append(f"left for you to write: {', '.join(missing)}")
    return tuple(notes)


def _of_kernels_under_autocast(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return a note if a function of the user's, perhaps a kernel, may get tensors of several dtypes under autocast; [] otherwise.

    Autocast makes the result of a matmul half precision and leaves other tensors float32; only of two floating inputs can the dtypes
    differ. The user decides by the key `amp`.
    """
    if spec.forward is None or spec.amp or derivation.amp != "off":
        return []
    called = sorted(spec.foreign & spec.forward.names())
    # Of one floating input there are no two dtypes that could differ.
    if not called or sum(item.dtype == "float" for item in spec.tensors) < 2:
        return []
    told = f"under autocast {', '.join(called)} may get tensors of different dtypes"
    return [f"{told}: --amp float32 casts them, off leaves them"]


# --- Many ops, each from its table, spread over processes; and the texts of their proofs.


class Provable(NamedTuple):
    """The texts to run as an op's proof, and the proof they give; see `provable_of`."""

    proof: Proof  # as recorded if the run succeeds, without the version of torch
    op: str = ""
    checks: str = ""  # a module with cases and the reference in plain PyTorch
    kernels: tuple[tuple[str, str], ...] = ()  # modules imported by the op
    whose: str | None = None  # a note on foreign code run with it


class Rendering(NamedTuple):
    """The result of rendering one op's table; with `problems` there is nothing else."""

    op: str
    files: tuple[Wanted, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()  # files named by its formulas
    notes: tuple[str, ...] = ()
    problems: tuple[ScaffoldError, ...] = ()
    code: str = ""  # digest of the rendered Function, if proofs matter
    proof: Proof | None = None  # known for this specification and code
    provable: Provable | None = None  # if no proof is known


def render_ops(
    project: "Project",
    ops: Sequence[Listed],
    console: Console,
    *,
    formatted: bool = True,
    known: Known | None = None,
) -> dict[str, Rendering]:
    """Render the ops of a manifest, in several processes; return the results by op. Raise all their problems together, shared ones once.

    With `known`, the recorded proofs by op, each rendering has the valid one, or the texts to make one. If not `formatted`, texts are "",
    and only the digests of the unformatted ones are known: enough to see changes.
    """
    if not ops:
        return {}
    from scaffold.verify.limits import LimitReached
    from scaffold.verify.pool import over, processes_for  # one op needs none

    proving = known is not None
    shared = (project.configuration, project.places, formatted, proving)
    unwritten = {
        str(project.root / path): text for path, text in project.unwritten.items()
    }
    setting = Setting(*shared, unwritten)
    work = partial(_rendered, setting)
    results: dict[str, Rendering] = {}
    items = [(listed, (known or {}).get(listed.name, ())) for listed in ops]
    house = project.places.house
    limited = bool(house.templates.layers)
    try:
        with console.progress(len(ops), "ops") as update:
            for result in over(work, items, processes_for(len(ops)), limited):
                results[result.op] = result
                update(len(results))
    except LimitReached:
        raise _beyond_limits(house) from None
    problems = [problem for item in results.values() for problem in item.problems]
    once = {str(problem): problem for problem in problems}  # alike for many ops
    raise_all(list(once.values()))
    return results


def maths_digest(
    entry: Entry, configuration: Configuration, read: Reader, root: Path
) -> str:
    """Return the digest of everything a proof of the op depends on: its keys and the files they name, comments apart."""
    meant = read.digests(root, meaning_digest)
    return proof_digest(entry, configuration, meant, meaning_digest)


def _rendered(setting: Setting, item: tuple[Listed, tuple[Proof, ...]]) -> Rendering:
    """Render one op, given with its known proofs (`item`); errors are part of the result, since other processes run this."""
    listed, known = item
    read = Reader(setting.unwritten)
    places, configuration = setting.places, setting.configuration
    try:
        spec = specification(listed, configuration, places, read)
        made = make(spec, setting, listed.entry.locate, listed.manifest)
        refuse_sources(places.root, [item.path for item in made.files], read.paths)
    except ScaffoldError as error:
        return Rendering(listed.name, problems=error.problems)
    reads = read.digests(places.root)
    found = Rendering(listed.name, made.files, reads, made.notes)
    if not setting.proving:
        return found
    maths = maths_digest(listed.entry, configuration, read, places.root)
    return _with_proof(found, spec, made.derivation, maths, known)


def rendering_of(
    generated: Generated, project: "Project", known: tuple[Proof, ...] | None
) -> Rendering | None:
    """Return a generated op as `render_ops` would render its table, to save rendering it again.

    None if that may differ: the op was generated with other settings than the project has. `known` are its recorded proofs, None: none is
    asked for.
    """
    specified, listed = generated.specified, project.listed[generated.spec.name]
    # Both are in the files: the header names the manifest.
    generated_for = (generated.manifest, specified.configuration)
    if generated_for != (listed.manifest, project.configuration):
        return None
    if not _same_style(specified.places, project.places):
        return None
    reads = specified.reads.digests(project.root)
    found = Rendering(listed.name, generated.written, reads, generated.notes)
    if known is None:
        return found
    read = specified.reads
    maths = maths_digest(listed.entry, project.configuration, read, project.root)
    if generated.proof is not None:  # made before its table was in the manifest
        known = (*known, generated.proof._replace(spec=maths))
    return _with_proof(found, generated.spec, generated.derivation, maths, known)


def _same_style(one: Places, other: Places) -> bool:
    """Return whether two places give the same texts; formatters are left out: the configuration chooses them, compared by the caller."""
    return one._replace(formatter=other.formatter) == other


def _with_proof(
    found: Rendering,
    spec: OpSpec,
    derivation: Derivation,
    maths: str,
    known: tuple[Proof, ...],
) -> Rendering:
    """Return the rendering `found` with the known proof of its specification (`maths`, a digest) and code, or else with texts to prove it."""
    code = function_digest(found.files[0].text, spec.definitions)  # the op's own file
    valid = (proof for proof in known if (proof.spec, proof.function) == (maths, code))
    proof = next(valid, None)
    if proof is not None:
        return found._replace(code=code, proof=proof)
    provable = provable_of(spec, derivation, Proof(maths, code))
    return found._replace(code=code, provable=provable)


def provable_of(spec: OpSpec, derivation: Derivation, proof: Proof) -> Provable:
    """Return the texts to run as the op's proof, and `proof` with the digest of the code in them; or, without texts, why there is none.

    The reason is in `proof.lacks`: parts of the op are left to write. The code is the built-in templates', whatever the team's make of it.
    """
    from scaffold.render.verification import verification  # most runs prove nothing

    missing = missing_of(spec, derivation)
    if missing:
        return Provable(proof._replace(lacks=f"it lacks {', '.join(missing)}"))
    texts = verification(spec, derivation, derivation.derived)
    ran = function_digest(texts.op, spec.definitions)
    whose = runs_code_of(spec)
    proof = proof._replace(function=ran)
    return Provable(proof, texts.op, texts.checks, kernel_modules(spec), whose)
