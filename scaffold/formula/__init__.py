"""Formula text <-> graph: the first step from one line of maths to an op, read by `derive` to differentiate it.

In: Python expressions and statements over torch. Out: `Formula`s, and their text again. Invariant: text is read as syntax;
nothing of it is imported or run.

A formula takes this way; a module imports only from those above it:

    names                  names that syntax reads and binds, and free ones
    definitions            the definitions of a file, and its functions with resolved names
    text                   the text with its place, and the scope of its names
    graph                  the result of parsing: nodes, statements, a formula
    optionality            what may be None, and what a test for None tells
    constant_folding       operators and expressions over known values, and the branches they settle
    substitution, desugar, numpy_numbers, einops   rewrites of syntax, each from `ast` to `ast`
    aliasing               the memory a node shares or changes, and the memory of each name
    uses                   the names that statements read and bind
    value_kinds            tensors, Python values and tuples of tensors among the values of text
    equations              equations of `torch.einsum` that fit no operands
    expression, assertions one expression, an `assert` or a `raise` -> nodes
    operators              whether a name is an operator, and the function of a module without parameters
    made_tensors           the sizes and elements of a tensor built by a constructor
    module_forward         the forward of an nn.Module as a function of its inputs, parameters and settings
    user_functions         the function named by '@file.py:function', and its imports from files beside it
    loop_unrolling         short loops -> statements in a row
    inline                 calls of the file's functions -> their statements
    program                the statements to run
    emit                   a node as text
    definite_assignment    names assigned in some branches only
    statements             straight-line statements -> a formula
    verbatim               a forward with loops -> a formula that keeps the text
    own_text               the user's text as a function Python can run, for a proof to compare with
    parse                  the choice between `statements` and `verbatim`
"""

from scaffold.formula.aliasing import (
    Trace,
    changed_in_place,
    changes_memory,
    copied,
    same_memory,
    same_tensor,
    sharing,
    written_to,
)
from scaffold.formula.assertions import refuses
from scaffold.formula.constant_folding import (
    ARITHMETIC,
    COMPARISONS,
    NO_STRING,
    OPPOSITES,
    PRESENT,
    UNKNOWN,
    Number,
    are_opposite,
    as_number,
    compared,
    computed,
    evaluated,
    has_many_digits,
    literal_value,
    of_math,
    opposite_of,
    truth,
)
from scaffold.formula.emit import emit, emit_lines
from scaffold.formula.graph import (
    Assign,
    Formula,
    Graph,
    If,
    Kept,
    Lines,
    Node,
    Statement,
    arguments_of,
    assignments,
    bound,
    expressions,
    is_of_module,
    keywords,
    renaming,
    rewritten,
    unpacked,
)
from scaffold.formula.graph import Kind as NodeKind
from scaffold.formula.operators import (
    is_judged,
    is_newer,
    is_torch_word,
    judged,
    judged_value,
    meant,
    newer,
)
from scaffold.formula.optionality import checked_for_none, is_present
from scaffold.formula.parse import parse
from scaffold.formula.statements import assigned
from scaffold.formula.text import BUILTINS, WELL_KNOWN, Meanings, Scope, Text
from scaffold.formula.user_functions import FunctionText, docstring_of, function_in
from scaffold.formula.uses import (
    Read,
    data_read,
    free_names,
    free_reads,
    is_check,
    metadata_read,
    names_bound_to,
    nodes,
    raises,
    read_names,
    reads,
    surely_written,
    written,
)
from scaffold.formula.value_kinds import ValueKinds, functions_of_numbers

__all__ = [
    "ARITHMETIC",
    "BUILTINS",
    "COMPARISONS",
    "NO_STRING",
    "OPPOSITES",
    "PRESENT",
    "UNKNOWN",
    "WELL_KNOWN",
    "Assign",
    "Formula",
    "FunctionText",
    "Graph",
    "If",
    "Kept",
    "Lines",
    "Meanings",
    "Node",
    "NodeKind",
    "Number",
    "Read",
    "Scope",
    "Statement",
    "Text",
    "Trace",
    "ValueKinds",
    "are_opposite",
    "arguments_of",
    "as_number",
    "assigned",
    "assignments",
    "bound",
    "changed_in_place",
    "changes_memory",
    "checked_for_none",
    "compared",
    "computed",
    "copied",
    "data_read",
    "docstring_of",
    "emit",
    "emit_lines",
    "evaluated",
    "expressions",
    "free_names",
    "free_reads",
    "function_in",
    "functions_of_numbers",
    "has_many_digits",
    "is_check",
    "is_judged",
    "is_newer",
    "is_of_module",
    "is_present",
    "is_torch_word",
    "judged",
    "judged_value",
    "keywords",
    "literal_value",
    "meant",
    "metadata_read",
    "names_bound_to",
    "newer",
    "nodes",
    "of_math",
    "opposite_of",
    "parse",
    "raises",
    "read_names",
    "reads",
    "refuses",
    "renaming",
    "rewritten",
    "same_memory",
    "same_tensor",
    "sharing",
    "surely_written",
    "truth",
    "unpacked",
    "written",
    "written_to",
]
