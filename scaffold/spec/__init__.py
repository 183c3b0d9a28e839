"""What the user wrote -> a frozen `OpSpec`, with every problem at its place."""

from scaffold.spec.build import build
from scaffold.spec.config import Configuration, load_configuration
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
    Style,
    Surrogate,
    TensorInput,
    is_leading,
    is_size_name,
    leading,
)

__all__ = [
    "ANY_DIMS",
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
    "build",
    "is_leading",
    "is_size_name",
    "leading",
    "load_configuration",
]
