"""Write custom PyTorch operators: Function, wrapper, Module and tests from one specification."""

__version__ = "0.1.0"
