"""``python -m mmroute``."""

import sys

from mmroute.cli import main

if __name__ == "__main__":
    sys.exit(main())
