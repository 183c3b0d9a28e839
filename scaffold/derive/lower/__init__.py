"""Lower statements and expressions of the forward to the graph; `reverse` then makes the graph of the gradients from it."""
