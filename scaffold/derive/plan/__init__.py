"""What of the forward is saved for the backward, and what is computed again."""
