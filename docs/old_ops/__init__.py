"""Functions as old code bases have them; four of the five have a fault. See ../old-functions.md."""
