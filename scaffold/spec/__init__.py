"""What the user wrote -> a frozen `OpSpec`, with every problem at its place."""

from scaffold.spec.build import build
from scaffold.spec.config import Configuration, load_configuration
from scaffold.spec.op_spec import (
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
)

__all__ = [
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
    "load_configuration",
]
