"""One of two values, by a test that is fixed for a call.

In: the test and both values. Out: an op. Invariant: `not`, `is` and `!=` are turned around, so that equal tests are the same node.
"""

from scaffold.derive.vjp.ir import Kind, Op, Program
from scaffold.derive.vjp.written import static_node
from scaffold.formula import Node


def choose(program: Program, test: Node, body: Op, orelse: Op) -> Op:
    """One of two values by a test that is fixed for a call; `not` and `is` are turned around."""
    if body is orelse:
        return body
    match test:
        case Node("unary", "not", (inner,)):
            return choose(program, inner, orelse, body)
        case Node("compare", "is" | "!=" as label, args):
            turned = {"is": "is not", "!=": "=="}[label]
            return choose(
                program, program.graph.node("compare", turned, args), orelse, body
            )
        case Node(
            "compare", "==", (Node("binary", "/", (x, by)), Node("constant", "0"))
        ):
            if by.kind == "constant":  # which is not 0, or there is no test
                test = program.graph.node("compare", "==", (x, test.args[1]))
    match test:
        case Node("compare", "==", (Node("constant", one), Node("constant", "0"))):
            if one.isdecimal():
                return orelse if int(one) else body
    if body.kind == orelse.kind == "static":
        nodes = [static_node(program, item) for item in (body, orelse)]
        return program.static(program.graph.node("conditional", "", (test, *nodes)))
    tensor = body if body.is_tensor else orelse
    kind: Kind = "complex" if "complex" in (body.kind, orelse.kind) else tensor.kind
    same = body.shape == orelse.shape or not (body.is_tensor and orelse.is_tensor)
    return program.op(
        "cond",
        (body, orelse),
        test,
        kind=kind,
        shape=tensor.shape if same else None,
        active=body.active or orelse.active,
    )
