"""The version of the tool, for what stands below the package: `scaffold` offers what stands above it."""

__version__ = "0.1.0"
