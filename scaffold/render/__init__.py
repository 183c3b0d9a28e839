"""OpSpec + Derivation -> text, through templates and a formatter.

Nothing is imported here: who asks where a file goes, or which templates there are, pays for neither jinja2 nor black.
"""
