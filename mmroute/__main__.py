"""The program ``mmroute``, and ``python -m mmroute``."""

import atexit
import contextlib
import gc
import os
import sys
from typing import Final

# The number of new objects after which Python collects garbage. Modules and models are hundreds of
# thousands of objects, of which none is garbage; with the default, 700, they are searched for it.
_OBJECTS: Final = 50_000


def run() -> None:
    """Run one command, and end with its exit status.

    The command does not wait for its threads: they choose an encoder for requests that nobody asks.
    It does not free its memory either, which takes 0.2 s for a vocabulary.
    """
    gc.set_threshold(_OBJECTS)
    try:
        from mmroute.cli import main  # importing it is what makes most objects

        status = main()
    except KeyboardInterrupt:  # `main` catches it once it runs
        status = 130
    atexit._run_exitfuncs()  # noqa: SLF001 - Python has no public name for it
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):  # the command has told of it
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
