"""What is measured of the library; README.md says how, `evidence.study` is what all share."""

import sys
from pathlib import Path

# Those that are not rewritten on `evidence.study` yet import each other by their bare names.
sys.path.append(str(Path(__file__).parent))
