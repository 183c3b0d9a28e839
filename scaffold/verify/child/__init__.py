"""The child process: the only part of the tool to import torch and run the user's code.

In: a request on stdin. Out: an answer on stdout, as JSON.
Invariant: nothing outside this package imports it; it is started by its path, by the rest of `scaffold.verify`.
"""
