"""Run plain `pytest` in each directory given, as a shell there would, but pay for importing torch once.

In: directories. Out: one JSON list on stdout: exit code and output of each run.
A process of its own per run: `sys.path` and `sys.modules` are those of a fresh interpreter that has torch.
"""

import json
import os
import sys
import tempfile

import pytest
import torch
from torch.testing import assert_close


def run(directory: str) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.chdir(directory)
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            status = 99
            try:
                options = ["-q", "-p", "no:cacheprovider", "-k", "forward"]
                status = int(pytest.main(options))
                sys.stdout.flush()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode()


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert_close(torch.ones(1), torch.ones(1))  # imports a good deal when first called
    results = [run(directory) for directory in sys.argv[1:]]
    print(json.dumps(results))
