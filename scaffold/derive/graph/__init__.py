"""The differentiated graph: ops, the shapes and kinds of their results, and facts known before a call."""
