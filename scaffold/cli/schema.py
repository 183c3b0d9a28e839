"""`scaffold schema`: the schema for editors to complete and check a file of ops.

Out: JSON on stdout. Invariant: the same version prints the same bytes.
"""

import typer


def schema() -> None:
    """Print the JSON Schema of a file of ops.

    Editors find it by a comment in the first line of the file: #:schema ./scaffold.schema.json

    Example: scaffold schema > scaffold.schema.json
    """
    from scaffold.spec.json_schema import schema_text

    typer.echo(schema_text(), nl=False)
