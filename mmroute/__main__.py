"""The program ``mmroute``, and ``python -m mmroute``."""

import logging
import os
import sys
import threading

from mmroute.cli import main


def run() -> None:
    """Run one command, and end with its exit status.

    The command does not wait for its threads: they choose an encoder for requests that nobody asks.
    """
    status = main()
    if threading.active_count() > 1:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
