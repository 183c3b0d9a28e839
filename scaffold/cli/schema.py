"""`scaffold schema`: what an editor completes and checks a file of ops by.

Out: JSON on stdout. Invariant: the same version prints the same bytes.
"""

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
    from scaffold.spec.json_schema import schema_text

    typer.echo(schema_text(configuration), nl=False)
