"""Forward formula -> gradient formulas: the rule table, and the engine that reads it. Pure, without torch."""
