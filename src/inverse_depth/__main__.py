"""`python -m inverse_depth`."""

import sys

from inverse_depth.cli import main

sys.exit(main())
