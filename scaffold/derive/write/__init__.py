"""The graph of the backward -> statements as an author would write them, each where it is needed."""
