"""The forward of the generated op, and the values the backward may read of it: statements over the user's names."""
