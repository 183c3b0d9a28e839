"""The forward as it will stand in the op, and what the backward may read of it: statements over the names of the user."""
