"""What the user wrote -> a frozen `OpSpec`, with every problem at its place."""

from scaffold.spec.build import build
from scaffold.spec.config import Configuration, load_configuration
from scaffold.spec.model import (
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
    "Surrogate",
    "TensorInput",
    "build",
    "load_configuration",
]
