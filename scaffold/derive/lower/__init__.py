"""Lower statements and expressions of the forward to the graph, of which `reverse` then makes that of the gradients."""
