"""`python -m inverse_depth`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        f"error: Python 3.11 is needed, this is {sys.version.split()[0]}; `make setup` makes .venv "
        "with one, then use .venv/bin/python"
    )

from inverse_depth.cli import main  # noqa: E402

sys.exit(main())
