"""Run folders written by hand, for what reads them: nothing is trained, the numbers follow from the arguments."""

import json

import numpy as np


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_run(
    folder,
    task="procgen/bigfish",
    method="ede",
    seed=0,
    steps=100_000,
    level=10.0,
    gap=2.0,
    points=10,
    reached=1.0,
    preset="laptop",
    achievements=False,
    **settings,
):
    """A run whose held-out return climbs to ``level`` and whose training return is ``gap`` above it.

    ``reached`` < 1 leaves it unfinished at that share of its steps.
    """
    generator = np.random.default_rng([seed, *task.encode(), *method.encode()])
    folder.mkdir(parents=True)
    config = {
        "task": task,
        "method": method,
        "preset": preset,
        "seed": seed,
        "settings": {"steps": steps, "phi": 30.0, "batch_size": 128, "train_contexts": "0..199", **settings},
        "changed": settings,
        "train_contexts": "0..199",
        "test_contexts": "full",
        "steps": steps,
        "versions": {"ede": "0.1.0", "torch": "2.13.0"},
        "machine": {"cpu": "synthetic", "cores": 2},
        "commit": "abc1234",
        "command": f"ede train {task} --method {method} --seed {seed}",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    last = int(steps * reached)
    evals, metrics, episodes = [], [], []
    for step in np.linspace(steps / points, steps, points).astype(int).tolist():
        if step > last:
            continue
        skill = step / steps
        metrics.append(
            {
                "step": step,
                "updates": step // 64,
                "loss": 1.0 - 0.5 * skill,
                "epistemic": 1.0 - 0.8 * skill,
                "aleatoric": 0.5 + 0.1 * skill,
                "steps_per_second": 500.0,
                "seconds": step / 500.0,
            }
        )
        for _ in range(5):
            unlocked = {"achievements": (generator.random(22) < 0.4 * skill).astype(int).tolist()}
            episodes.append(
                {
                    "step": step - 1,
                    "lane": 0,
                    "context": int(generator.integers(200)),
                    "return": float(level * skill + gap + generator.normal()),
                    "length": 100,
                    "terminated": True,
                    **(unlocked if achievements else {}),
                }
            )
        for split, extra, limit in (("train", gap, 200), ("test", 0.0, 2**31 - 1)):
            for final in {False, step == steps}:
                count = 60 if final else 10
                evals.append(
                    {
                        "step": step,
                        "split": split,
                        "final": final,
                        "protocol": {"contexts": "-", "episodes": count, "epsilon": 0.05, "rule": "greedy"},
                        "returns": (level * skill + extra + generator.normal(size=count)).tolist(),
                        "lengths": [100] * count,
                        "contexts": generator.integers(limit, size=count).tolist(),
                    }
                )
    write_lines(folder / "evals.jsonl", sorted(evals, key=lambda row: (row["step"], row["final"])))
    write_lines(folder / "metrics.jsonl", metrics)
    write_lines(folder / "episodes.jsonl", episodes)
    if reached == 1.0:
        (folder / "DONE").write_text(json.dumps({"step": steps, "seconds": steps / 500}), encoding="utf-8")
    return folder
