"""As in tests/cli: templates are tried on few ops."""

from tests.cli.conftest import few_samples

__all__ = ["few_samples"]
