"""Draw the README's picture of a report: ``python docs/picture.py`` (needs Chromium)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path


def picture(path: Path) -> None:
    """Draw the top of the demonstration's report."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("the picture needs Chromium")
    from PIL import Image

    from manyhands import CrowdStackingClassifier, load_demo
    from manyhands.metrics import accuracy_on_new_items
    from manyhands.report import summarize, write_report

    demo = load_demo()
    model = CrowdStackingClassifier(random_state=0).fit(demo.X_train, demo.annotations)
    new = accuracy_on_new_items(gold=demo.y_test, predicted=model.predict(demo.X_test))
    shown = {"X": demo.X_train, "title": "Digits", "new_items": new}
    summary = summarize(demo.annotations, classifier=model, **shown)
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(summary, Path(folder, "report.html"))
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars"]
        command += [f"--screenshot={path}", "--window-size=1100,748", report.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    picture(Path(__file__).parent / "report.png")
