"""OpSpec + Derivation -> text, through templates and a formatter.

Nothing is imported here: code asking for file paths or template names imports neither jinja2 nor black.
"""
