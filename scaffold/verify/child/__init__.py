"""What runs in a process of its own: the only part of the tool that imports torch and runs the user's code.

In: a request on stdin. Out: an answer on stdout, as JSON.
Invariant: nothing outside this package imports it; it is started by its path, by the rest of `scaffold.verify`.
"""
