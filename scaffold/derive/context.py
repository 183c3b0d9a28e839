"""Names on ctx: attributes of the op, and what is kept of tensors that backward does not read.

In: an `OpSpec`. Out: a name on ctx for each value. Invariant: no two values share a name, and none has a name that
PyTorch gives a meaning on ctx.
"""

from scaffold.derive.metadata import kept_name
from scaffold.derive.names import fresh
from scaffold.spec import OpSpec

# What torch.autograd.Function's ctx has of its own.
OF_CTX = frozenset(
    {"apply", "apply_boxed", "apply_jvp", "backward", "dirty_tensors", "forward"}
    | {"mark_dirty", "mark_non_differentiable", "mark_shared_storage", "metadata"}
    | {"materialize_grads", "maybe_clear_saved_tensors", "name", "needs_input_grad"}
    | {"next_functions", "non_differentiable", "register_hook", "register_prehook"}
    | {"requires_grad", "save_for_backward", "save_for_forward", "saved_for_forward"}
    | {"saved_tensors", "saved_variables", "set_materialize_grads", "to_save"}
    | {"_autograd_function_id", "_backward_cls", "_compiled_autograd_backward_state"}
    | {"_compiled_autograd_key", "_forward_cls", "_get_compiled_autograd_symints"}
    | {"_get_user_fn", "_input_metadata", "_is_compiled_autograd_tracing"}
    | {"_is_pure_view", "_materialize_non_diff_grads", "_raw_saved_tensors"}
    | {"_register_hook", "_register_hook_dict", "_sequence_nr", "_set_sequence_nr"}
)


class ContextNames:
    """Gives every value its name on ctx, the same one each time."""

    def __init__(self, spec: OpSpec) -> None:
        self._taken = set(OF_CTX)
        self._names: dict[tuple[str, str], str] = {}
        for item in spec.attributes:
            self._give((item.name, ""), item.name, f"{item.name}_value")

    def attribute(self, name: str) -> str:
        return self._names[name, ""]

    def facet(self, name: str, facet: str) -> str:
        """The name of a tensor's shape, dtype, presence, ..."""
        known = self._names.get((name, facet))
        return known or self._give(
            (name, facet), kept_name(name, facet), f"{facet}_of_{name}"
        )

    def _give(self, key: tuple[str, str], usual: str, other: str) -> str:
        name = usual if usual not in self._taken else fresh(other, self._taken)
        self._taken.add(name)
        self._names[key] = name
        return name
