"""AF00: a file cannot be read as Python.

It has no check of its own: without a parsed file no check can run, so the reader of the file reports it as a finding.
"""

from scaffold.lint.model import Rule

RULE = Rule(
    "AF00",
    "a file cannot be read as Python",
    "Nothing is known of a file that cannot be parsed: no rule has looked at it. It is an error where the file was named on the "
    "command line, and advice where it lies somewhere below a directory: old code for Python 2, a template, syntax that is newer "
    "than the Python that runs scaffold.",
    bad="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2L
""",
    good="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
""",
)
