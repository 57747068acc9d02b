"""``python -m triptych``."""

import sys

from triptych.cli.main import main

sys.exit(main())
