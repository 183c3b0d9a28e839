"""The only place that starts processes: runs generated tests in the project's interpreter.

In: the paths of tests and an interpreter. Out: what each test did.
Invariant: what runs there can neither hang, crash nor change this process. No command needs it yet.
"""
