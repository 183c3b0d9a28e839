"""OpSpec + Derivation -> text, through templates and a formatter: the last step of generation.

Words used throughout: the *spec* (`OpSpec`) is what the user asked for: name, inputs, outputs, the forward as text. The *derivation* is what
the compiler made of it: statements of forward and backward, what is *saved* (tensors of `ctx.save_for_backward`) and *kept* (other values on
ctx). A *view* is the data that a template is filled with: strings, ready to stand in the file. A *variadic* input is any number of tensors,
`*tensors`, always the last input; an *optional* one may be None; *attributes* are arguments other than tensors.
Nothing is imported here: code asking for file paths or template names imports neither jinja2 nor black.
"""
