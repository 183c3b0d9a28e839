"""What ops carry: each engine op its own payload, primitives of the table none."""

import pytest

from scaffold.derive import derive
from scaffold.derive.graph.op import ENGINE_OPS, Op, Program
from scaffold.derive.rules.table import built_in
from scaffold.derive.rules.team_tables import table_of
from scaffold.formula import Graph
from scaffold.spec.build import build
from tests.derive.building import locate

FORWARDS = {
    "a choice": ("x, b?, s: str = 'a'", "torch.relu(x) * 2 if s == 'a' else x"),
    "sizes": ("x[...], y", "(x.sum(-1) / x.shape[-1]) * y.reshape(x.shape[:-1])"),
    "parts": ("x[N, D]", "a, b = x.chunk(2, dim=-1)\nreturn a * b[:, :1]"),
    "no rule": ("x, w", "torch.special.i0(x) * w.unsqueeze(-1)"),
    "matrices": ("x, w, b?", "torch.nn.functional.linear(x, w, b).softmax(-1)"),
}


@pytest.mark.parametrize("inputs, forward", FORWARDS.values(), ids=FORWARDS)
def test_payloads(inputs: str, forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Op]()
    plain = Program.op

    def noted(self: Program, *args: object, **options: object) -> Op:
        made.append(plain(self, *args, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(Program, "op", noted)
    spec = build("op", {"inputs": inputs, "forward": forward, "derive": True}, locate)
    derive(spec)
    assert made
    for op in made:
        if op.rule in ENGINE_OPS:
            assert isinstance(op.data, ENGINE_OPS[op.rule]), op
        else:
            assert table_of(spec).of_op(op.rule) is not None
            assert op.data is None


def test_no_rule_of_the_table_has_the_name_of_an_engine_op() -> None:
    spec = build("op", {"inputs": "x", "forward": "x", "derive": True}, locate)
    both = [name for name in ENGINE_OPS if table_of(spec).of_op(name) is not None]
    assert not both


def test_a_placeholder_stands_for_its_op_in_its_program_alone() -> None:
    program, other = (Program(Graph(), built_in().facts) for _ in range(2))
    one, two = program.const(1), program.const(2)
    assert program.behind(program.placeholder(one)) is one
    assert program.behind(program.placeholder(two)) is two
    assert other.behind(program.placeholder(two)) is None
    assert program.behind(program.graph.name("x")) is None
