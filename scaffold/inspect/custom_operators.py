"""Custom operators: functions under `torch.library.custom_op`, and what is registered for them.

In: what a scan of a file found. Out: `Operator`s.
Invariant: a registration belongs to an operator only where it is called on its very name.
"""

import ast

from scaffold.inspect.classes import parameters_of
from scaffold.inspect.functions import Operator
from scaffold.inspect.names import Names
from scaffold.inspect.scanning import Scan


def find_operators(found: Scan, names: Names) -> tuple[Operator, ...]:
    """Every custom operator of a file."""
    registered = _registrations(found, names)
    functions = {node.name: node for node, _ in found.functions}
    operators = []
    for node, _ in found.functions:
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            if names.resolve(decorator.func) != "torch.library.custom_op":
                continue
            name = decorator.args[0] if decorator.args else None
            call = registered.get(node.name)
            if call is None and isinstance(name, ast.Constant):
                call = registered.get(str(name.value))
            backward = call.args[0] if call and call.args else None
            if isinstance(backward, ast.Constant):
                backward = call.args[1] if call and len(call.args) > 1 else None
            found_backward = (
                functions.get(backward.id) if isinstance(backward, ast.Name) else None
            )
            mutates = next(
                (k.value for k in decorator.keywords if k.arg == "mutates_args"), None
            )
            operators.append(
                Operator(
                    node.name, node, parameters_of(node), mutates, call, found_backward
                )
            )
    return tuple(operators)


def _registrations(found: Scan, names: Names) -> dict[str, ast.Call]:
    """Calls of register_autograd by the function's or the operator's name."""
    registered: dict[str, ast.Call] = {}
    for call, _ in found.calls:
        if names.resolve(call.func) == "torch.library.register_autograd":
            if call.args and isinstance(call.args[0], ast.Constant):
                registered[str(call.args[0].value)] = call
            elif call.args and isinstance(call.args[0], ast.Name):
                registered[call.args[0].id] = call
        elif isinstance(call.func, ast.Attribute):
            owner = call.func.value
            if call.func.attr == "register_autograd" and isinstance(owner, ast.Name):
                registered[owner.id] = call
    return registered
