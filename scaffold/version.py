"""The version of the tool, for modules below the package itself, as `scaffold` exports modules above it."""

__version__ = "0.1.0"
