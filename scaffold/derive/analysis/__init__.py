"""Questions about the statements of an op that all passes ask: what carries a gradient, shares memory, is dead, is a tensor."""
