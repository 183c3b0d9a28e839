"""Fixes: the finding is gone, the file parses, and what no edit names is the same, comments included."""

import ast
import re

import pytest

from scaffold.lint import RULES, Finding, Unreadable, lint_text
from scaffold.lint.fixing import fix_text
from scaffold.lint.model import Edit
from tests.lint.cases import HEAD, Case, cases
from tests.sweeps import in_every_run

BAD = [case for case in cases() if case.kind == "bad" and RULES[case.rule].fixes]


def found(text: str, rule: str) -> tuple[Finding, ...]:
    findings = lint_text(text, "case.py", [RULES[rule]])
    assert not isinstance(findings, Unreadable)
    return findings


def fixed(text: str, rule: str) -> str:
    return fix_text(text, [f.edits for f in found(text, rule) if f.edits])


def commented(text: str) -> str:
    """The text with a comment of its own behind each line that can have one."""
    lines = text.split("\n")
    return "\n".join(
        f"{line}  # line {number}" if line.strip() else line
        for number, line in enumerate(lines)
    )


@pytest.mark.parametrize(
    "case",
    in_every_run(
        BAD, [case for case in BAD if case.number < 2], pytest.mark.each_commit
    ),
    ids=str,
)
def test_a_fix_ends_the_finding_and_touches_nothing_else(case: Case) -> None:
    check_found_no_more(case)
    check_other_lines(case)
    check_comments(case)


def check_found_no_more(case: Case) -> None:
    """What is fixed is found no more."""
    findings = found(case.text, case.rule)
    after = fixed(case.text, case.rule)
    ast.parse(after)
    left = {finding.message for finding in found(after, case.rule)}
    assert not left & {f.message for f in findings if f.edits}


def check_other_lines(case: Case) -> None:
    """Only lines of an edit change."""
    findings = found(case.text, case.rule)
    functions = {
        node.lineno: node
        for node in ast.walk(ast.parse(case.text))
        if isinstance(node, ast.FunctionDef)
    }
    named = {
        number
        for finding in findings
        for edit in finding.edits
        for number in changed_by(edit, functions)
    }
    after = iter(fixed(case.text, case.rule).split("\n"))
    for number, line in enumerate(case.text.split("\n"), 1):
        assert number in named or line in after, line  # in the order of the text


def changed_by(edit: Edit, functions: dict[int, ast.FunctionDef]) -> range:
    """The lines that an edit may take away."""
    first, _, last, _ = edit.span
    if edit.kind in ("replace", "remove", "undecorate"):
        return range(first, last + 1)
    if edit.kind == "signature":
        return range(first, functions[first].body[0].lineno)
    if edit.kind == "drop":
        decorators = [node.lineno for node in functions[first].decorator_list]
        return range(min([first, *decorators]), last + 1)
    return range(0)


def check_comments(case: Case) -> None:
    """No comment is lost."""
    text = commented(case.text)
    after = fixed(text, case.rule)
    there, left = (re.findall(r"# line \d+", t) for t in (text, after))
    moves = any(e.kind == "drop" for f in found(text, case.rule) for e in f.edits)
    assert (sorted(left) == sorted(there)) if moves else (left == there)


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.fixes])
def test_a_rule_that_says_so_fixes_some_of_its_cases(rule: object) -> None:
    name = next(r.id for r in RULES.values() if r is rule)
    edits = [f for case in BAD if case.rule == name for f in found(case.text, name)]
    assert any(finding.edits for finding in edits)


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if not rule.fixes])
def test_a_rule_that_does_not_say_so_fixes_nothing(rule: object) -> None:
    name = next(r.id for r in RULES.values() if r is rule)
    texts = [c.text for c in cases() if c.rule == name and c.kind == "bad"]
    assert not any(f.edits for text in texts for f in found(text, name))


def test_the_edits_of_a_finding_are_applied_together_or_not_at_all() -> None:
    text = "a = 1\nb = 2; c = 3\n"
    whole = Edit("replace", (1, 4, 1, 5), "7")
    shared = Edit("before", (2, 7, 2, 12), "x = 0")  # it shares its line
    assert fix_text(text, [(whole, shared)]) == text
    assert fix_text(text, [(whole,)]) == "a = 7\nb = 2; c = 3\n"


def test_two_findings_never_edit_one_place() -> None:
    text = "a = f(x)\n"
    first = (Edit("replace", (1, 4, 1, 8), "g(x)"),)
    second = (Edit("replace", (1, 6, 1, 7), "y"),)
    assert fix_text(text, [first, second]) == "a = g(x)\n"
    assert fix_text(text, [second, first]) == "a = f(y)\n"


@pytest.mark.parametrize(
    ("rule", "values", "marked"),
    [
        ("AF14", "(x > 0).float(), (x < 0).float()", ""),
        ("AF14", "(x > 0).float(), x > 1", "ctx.mark_non_differentiable(b)"),
        ("AF37", "x * 2, x * 3", ""),
        ("AF37", "x * 2, x > 1", "ctx.mark_non_differentiable(b)"),
    ],
)
def test_of_two_calls_that_mark_outputs_the_last_one_counts(
    rule: str, values: str, marked: str
) -> None:
    text = HEAD + f"""\
class Several(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = {values}
        {marked or "pass"}
        return x * 4, a, b

    @staticmethod
    def backward(ctx, g, h, k):
        return g * 4
"""
    assert found(text, rule) and fixed(text, rule) == text


def test_a_method_comes_with_the_empty_line_above_it() -> None:
    text = (
        "class C:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n"
    )
    edit = Edit("before", (5, 4, 6, 12), "\ndef e(self):\n    pass")
    added = "\n    def e(self):\n        pass\n"
    place = text.index("\n    def g")
    assert fix_text(text, [(edit,)]) == text[:place] + added + text[place:]


def test_what_begins_a_method_goes_behind_its_docstring() -> None:
    text = HEAD + """\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        '''Return the gradient.'''
        return g * 2
"""
    guard = "        if g is None:\n            return None\n"
    docstring = "'''Return the gradient.'''\n"
    assert fixed(text, "AF15") == text.replace(docstring, docstring + guard)


def test_columns_are_counted_as_ast_does() -> None:
    text = "a = 'äöü', x\n"
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
    last = node.value.elts[1]
    span = (1, last.col_offset, 1, last.end_col_offset or 0)
    assert fix_text(text, [(Edit("replace", span, "y"),)]) == "a = 'äöü', y\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""Doc."""\nx = 1\n', '"""Doc."""\nimport y\nx = 1\n'),
        ("import a\nimport b\nx = 1\n", "import a\nimport b\nimport y\nx = 1\n"),
        ("x = 1\n", "import y\nx = 1\n"),
    ],
)
def test_an_import_goes_behind_the_others(text: str, expected: str) -> None:
    edit = Edit("import", (1, 0, 1, 0), "import y")
    assert fix_text(text, [(edit,), (edit,)]) == expected


def test_a_local_called_output_is_not_taken_for_what_is_returned() -> None:
    """In a setup_context the name would be that of `output * 2`: another value would be saved, in silence."""
    text = f"""{HEAD}class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        output = x.exp()
        ctx.save_for_backward(output)
        return output * 2

    @staticmethod
    def backward(ctx, g):
        (output,) = ctx.saved_tensors
        return g * output * 2
"""
    assert found(text, "AF20") and fixed(text, "AF20") == text
    returned = text.replace("return output * 2", "return output")
    assert "def setup_context(ctx, inputs, output):" in fixed(returned, "AF20")
