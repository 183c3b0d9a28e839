"""`scaffold schema`: what an editor completes and checks a file of ops by.

Out: JSON on stdout. Invariant: the same version prints the same bytes.
"""

import json
from typing import Annotated

import typer

CONFIGURATION = Annotated[
    bool, typer.Option("--configuration", help="That of [tool.scaffold] instead.")
]


def schema(configuration: CONFIGURATION = False) -> None:
    """Print the JSON Schema of a file of ops.

    Editors find it by a comment in the first line of the file: #:schema ./scaffold.schema.json

    Example: scaffold schema > scaffold.schema.json
    """
    typer.echo(schema_text(configuration), nl=False)


def schema_text(configuration: bool = False) -> str:
    """The schema as a file holds it."""
    from scaffold.spec.schema import configuration_schema, ops_schema

    described = configuration_schema() if configuration else ops_schema()
    return json.dumps(described, indent=2) + "\n"
