"""The child process: the only part of the tool to import torch and run the user's code.

In: a request on stdin. Out: an answer on stdout, as JSON.
Words used throughout: the *module of checks*, the parameter `checks`, is a text generated for one op (`templates/verification.py.jinja`)
and imported here: the op, the same in plain PyTorch, and functions to make inputs. A *case* is one call to try; a *scene* is what a
diagnosis may look at; the *grad_outputs* (or *weights*) are the gradients that arrive at the outputs.
Invariant: nothing outside this package imports it; it is started by its path, by the rest of `scaffold.verify`.
"""
