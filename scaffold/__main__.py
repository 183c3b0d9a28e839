"""`python -m scaffold` is the command `scaffold`."""

import os
import sys

if not sys.flags.safe_path and sys.path and sys.path[0] == os.getcwd():
    del sys.path[0]  # do not import a torch.py or jinja2.py of the working directory

from scaffold.cli import main

if __name__ == "__main__":
    main()
