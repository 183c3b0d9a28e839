"""What the user wrote -> a frozen `OpSpec`, with every problem at its place."""

from scaffold.spec.model import (
    Attribute,
    Dim,
    Import,
    Init,
    Input,
    ModuleSpec,
    OpSpec,
    Output,
    Samples,
    Surrogate,
    TensorInput,
)

__all__ = [
    "Attribute",
    "Dim",
    "Import",
    "Init",
    "Input",
    "ModuleSpec",
    "OpSpec",
    "Output",
    "Samples",
    "Surrogate",
    "TensorInput",
]
