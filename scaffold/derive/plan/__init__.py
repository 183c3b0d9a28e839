"""The choice between saving values of the forward and recomputing them in the backward."""
