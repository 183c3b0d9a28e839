"""Process pool: one function over many items.

Rendering all ops of a project, and reading all of its files, use it. In: a function of a module (one that a new process can import), its
items, the number of processes. Out: the results, in the order of the items.
Invariant: with one process nothing is started, unless its memory is limited; an interrupt ends all of them.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items for one more process, which costs as much to start as a few of them.
WORTHWHILE = 40


def processes_for(items: int) -> int:
    """Return the number of processes worth starting for so many items."""
    return max(1, min(cores(), items // WORTHWHILE))


def cores() -> int:
    """Return the number of cores this process may use."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 0
    return allowed or os.cpu_count() or 1


def over(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    limited: bool = False,
) -> Iterator[Result]:
    """Yield function(item) of each item, in their order, computed in several processes; raise LimitReached if one was killed.

    `limited`: their memory is limited, as the function runs a team's templates; then at least one process is started even if `processes` is
    1: a limit cannot be lifted again in our own.
    """
    if processes <= 1 and not limited:
        yield from map(function, items)
        return
    import multiprocessing  # most runs need no second process
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    from scaffold.verify.limits import LimitReached, hold

    # A fork has our modules already; on other systems it is not safe.
    method = "fork" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    begin = hold if limited else None
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=begin)
    try:
        # Eight items are sent at once, which is faster than one by one.
        yield from pool.map(function, items, chunksize=8)
    except BrokenProcessPool:
        raise LimitReached from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
