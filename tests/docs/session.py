"""Run a Python session of a page, `>>> ` lines and answers, in the directory of its reader.

In: the text of the session. Out: nothing, or what came out otherwise, as doctest shows it.
"""

import doctest
import os
import sys

if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(sys.argv[1], {}, "page", None, 0)
    doctest.DocTestRunner(verbose=False, optionflags=flags).run(test)
