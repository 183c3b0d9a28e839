"""Writing the backward: its graph -> statements as an author would write them, each placed where it is needed."""
