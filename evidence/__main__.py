"""``python -m evidence``: run published rows, and write pages of their records."""

from evidence.commands import app

if __name__ == "__main__":
    app(prog_name="python -m evidence")
