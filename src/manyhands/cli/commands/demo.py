"""The command `demo`."""

from __future__ import annotations

from pathlib import Path

from manyhands.cli.errors import reported
from manyhands.cli.options import Json, OutFolder, Seed
from manyhands.cli.output import print_json, print_table, say


@reported
def demo(
    out: OutFolder = Path("manyhands-demo"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train on an embedded crowd, compare four methods with the gold-trained ceiling, and report.

    Example: manyhands demo --out /tmp/demo
    """
    from manyhands.jobs import report_folder, run_demo

    result = run_demo(out, seed=seed, verbose=0 if json else 1)
    result["report"] = str(report_folder(out))
    if json:
        print_json(result)
        return
    data = result["data"]
    print_table(
        f"{data['instances']:,} digits, {data['annotations']:,} annotations by "
        f"{data['annotators']} simulated annotators; {data['test_instances']} test digits",
        ["method", "labels inferred right", "test accuracy", "seconds"],
        [
            [r["method"], r["train_label_accuracy"], r["test_accuracy"], f"{r['seconds']:.1f}"]
            for r in result["rows"]
        ],
    )
    say(f"report: {result['report']}")
    say(f"model (CoNAL), labels.csv: {out}  (next: manyhands predict {out} X.npy)")
