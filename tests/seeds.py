"""Seeds without the devices that are not there.

Where there is no such device, `torch.manual_seed` keeps for each kind of it how it was called, with all lines of the stack: that took
a fifth of the tests' time. In: the modules that are loaded. Out: torch seeds the CPU alone. Invariant: with a device nothing changes.
"""

import sys


def seed_this_device_alone() -> None:
    """Let torch, if it is loaded, take this process for a fork of one that used such a device: it leaves the device alone."""
    torch = sys.modules.get("torch")
    for kind in (torch.cuda, torch.xpu, torch.mtia) if torch else ():
        if not kind.is_available():
            kind._is_in_bad_fork = lambda: True
