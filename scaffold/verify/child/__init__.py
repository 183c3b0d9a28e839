"""The child process: the only part of the tool to import torch and run the user's code.

In: a request on stdin. Out: an answer on stdout, as JSON.
Words used throughout: the *module of checks*, the parameter `checks`, is a text generated for one op (`templates/verification.py.jinja`)
and imported here: the op, the same in plain PyTorch, and functions to make inputs. A *case* is one call to try; a *scene* is what a
diagnosis may look at; the *grad_outputs* (or *weights*) are the gradients that arrive at the outputs.
Of the module of checks: OPERATOR is the op, FORWARD the same in plain PyTorch, OWN_FORWARD the user's text as written; REFERENCE has the
gradients to expect; TESTS is the class of the generated tests, `make` makes the inputs of a call; NAMES are the inputs, INPUT_SHAPES their
declared dims (None: undeclared), DIFFERENTIABLE those with a gradient; CASES and EMPTY_CASES are those of the tests, FURTHER_CASES the
proof's own; LOOSE: some input has no declared shape, so that of the tests is a guess.
Invariant: nothing outside this package imports it; it is started by its path, by the rest of `scaffold.verify`.
"""
