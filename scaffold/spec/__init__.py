"""The user's description of an op -> a frozen `OpSpec`, with every problem at its place.

The first stage of every command: `derive` and `render` read the `OpSpec`, never the user's text. `build` joins its parts: the
signature (`grammar`, `signature`, `arguments`), the formulas (`maths`), the nn.Module (`module`). `keys` are the keys of an op's
table, `config_keys` those of a project's `[tool.scaffold]`; `manifest` and `toml` read files of ops.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.spec.config import Configuration, load_configuration
    from scaffold.spec.keys import Amp, Style
    from scaffold.spec.op_spec import (
        ANY_DIMS,
        Attribute,
        Dim,
        Domain,
        Import,
        Init,
        Input,
        ModuleSpec,
        OpSpec,
        Output,
        RuleFile,
        Samples,
        Surrogate,
        TensorInput,
        is_leading,
        is_size_name,
        is_variadic,
        leading,
    )

__all__ = [
    "ANY_DIMS",
    "Amp",
    "Attribute",
    "Configuration",
    "Dim",
    "Domain",
    "Import",
    "Init",
    "Input",
    "ModuleSpec",
    "OpSpec",
    "Output",
    "RuleFile",
    "Samples",
    "Style",
    "Surrogate",
    "TensorInput",
    "is_leading",
    "is_size_name",
    "is_variadic",
    "leading",
    "load_configuration",
]


if not TYPE_CHECKING:

    def __getattr__(name):
        """Return a public name, imported on first use: `scaffold --help` needs none of it and shall start fast."""
        if name in __all__:
            from scaffold.spec import config, keys, op_spec

            for module in (config, keys, op_spec):
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
