"""The graph that is differentiated: ops, the shapes and kinds of their results, and what is known of them before a call."""
