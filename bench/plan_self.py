#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether `trireme plan train` predicts this machine: time and memory of steps, against `trireme train`.

plan_self.py [TRIREME] [--cluster FILE.yaml] [--rounds 2] [--only WORDS] [--no-memory] [--json FILE] [SETTING=VALUE ...]

Without --cluster, `trireme bench --write` describes the machine first. Each plan is then predicted and trained for some steps, the
first left out, in windows of about a second; the median window of all rounds counts, "least" is the fastest. Another short run's
memory is looked at as memory.py does. An error is predicted / measured - 1. Exit code 9: a time is off by more than 10 %, or a memory by
more than 2 %. --only gpt2-char,pp=2 chooses the plans in whose line one of the words occurs; --rounds 0 leaves times out. Needs
nothing but Python and Linux, two cores, and nobody else on them.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from memory import NOTHING, measured as memory_of
from pipeline import make_text

LLAMA = ("model.kind=llama model.layers=4 model.width=256 model.heads=8 model.heads_kv=4 model.ffn=704 model.vocab=4096 "
         "model.positions=1024 model.tied=false")
MODELS = {"gpt2": "model=gpt2 model.weights=random model.vocab=50257", "llama-small": LLAMA}
# model, type, ranks x threads, sequence, sequences per pass, passes, and what else is set
PLANS = """
gpt2-1m     f32  1x1  256 8 1
gpt2-1m     bf16 1x1  128 4 4
gpt2-1m     f32  2x1  256 4 2
gpt2-1m     f32  1x2  256 8 1
gpt2-char   f32  1x1  256 4 1
gpt2-char   bf16 1x1  512 2 2 model.positions=512
gpt2-char   f32  1x1  256 4 1 recompute=full
gpt2-char   f32  1x1  256 8 1 recompute=selective
gpt2-char   bf16 1x2 1024 1 2 model.positions=1024
gpt2-char   bf16 2x1  256 2 2
gpt2-char   f32  2x1  256 1 8 pp=2 schedule=gpipe
gpt2-char   f32  2x1  256 2 8 pp=2 schedule=1f1b
gpt2-char   bf16 2x1  128 2 8 pp=2 schedule=zb_h1
gpt2-char   f32  2x1  256 2 4 pp=2 schedule=1f1b recompute=full
llama-small f32  2x1  512 2 2
llama-small bf16 2x1  128 4 8 pp=2 schedule=1f1b
llama-small f32  1x1 1024 1 2 recompute=selective
gpt2        f32  2x1  256 1 1
gpt2        bf16 2x1  128 1 4 pp=2 schedule=1f1b
gpt2        f32  1x2  128 2 1
"""
TIME_MARK, MEMORY_MARK = 0.10, 0.02
WINDOW = 0.8  # seconds


def settings_of(line, text):
    model, kind, layout, sequence, micro, passes, *more = line.split()
    ranks, threads = map(int, layout.split("x"))
    pp = int(next((m[3:] for m in more if m.startswith("pp=")), 1))
    batch = int(micro) * int(passes) * (ranks // pp)
    return [*MODELS.get(model, f"model={model}").split(), f"precision.compute={kind}", f"run.ranks={ranks}",
            f"run.threads={threads}", f"data.sequence={sequence}", f"batch.micro={micro}", f"batch.sequences={batch}",
            f"data.path={text}", "data.tokenizer=byte", *more]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"plan_self.py: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def train_command(options, settings, folder, steps, log_every):
    return [options.trireme, "train", *settings, f"train.folder={folder}", f"train.steps={steps}", f"train.log_every={log_every}",
            "train.eval_every=0", "train.eval_samples=1", "train.tensorboard=false", *options.settings]


def windows(options, settings, step_s):
    """Seconds of a step in each window of a run."""
    steps = max(1, math.ceil(WINDOW / step_s))
    count = 5 if step_s < 2 else 3
    with tempfile.TemporaryDirectory(prefix="trireme-self-") as folder:
        # The first step is a window of its own; from there on log lines fall on multiples of log_every.
        output(train_command(options, settings, folder, steps * (count + 1), steps))
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            records = [r for r in map(json.loads, file) if "loss" in r]
    tokens = records[0]["tokens"]
    first = 2 if steps > 1 else 1  # the rest of the first window warms up, too
    return [tokens / r["tokens_per_s"] for r in records[first:]]


def memory_at_work(options, settings, most):
    """Ranks are looked at one after the other, and a page that one of them maps in between counts more than once: what is above
    `most` has to be seen in two runs."""
    least = math.inf
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="trireme-self-") as folder:
            least = min(least, memory_of(train_command(options, settings, folder, 2, 1)))
        if least <= most:
            break
    return least


def memory_at_rest(options, line, text, known):
    """What processes take that train nothing."""
    kind, layout = line.split()[1:3]
    if (kind, layout) not in known:
        settings = settings_of(f"gpt2-tiny {kind} {layout} 8 1 1", text)[1:] + NOTHING
        with tempfile.TemporaryDirectory(prefix="trireme-self-") as folder:
            command = train_command(options, settings, folder, 200, 100)
            plan = json.loads(output([*command, "--json"]))
            known[kind, layout] = max(0, memory_of(command) - plan["memory_total"])
    return known[kind, layout]


def print_row(row):
    time = memory = f"{'-':>10} {'-':>10} {'-':>8}"
    if "measured_s" in row:
        time = f"{1e3 * row['measured_s']:10.2f} {1e3 * row['least_s']:10.2f} {100 * row['time_error']:+7.1f}%"
    if "measured_bytes" in row:
        memory = f"{row['measured_bytes'] / 2**20:10.1f} {100 * row['memory_error']:+7.2f}%"
    print(f"{row['plan']:58} {1e3 * row['predicted_s']:10.2f} {time} {row['predicted_bytes'] / 2**20:10.1f} {memory}", flush=True)


def summary(rows, key, mark, what):
    errors = sorted(abs(r[key]) for r in rows if key in r)
    if not errors:
        return True
    within = sum(e <= mark for e in errors)
    print(f"{what}: median {100 * statistics.median(errors):.2f} %, most {100 * errors[-1]:.2f} %, "
          f"{within} of {len(errors)} within {100 * mark:g} %")
    return within == len(errors)


def measure(options, lines, text, cluster):
    rows, rest, seen = [], {}, {line: [] for line in lines}
    for line in lines:
        settings = settings_of(line, text)
        told = json.loads(output([options.trireme, "plan", "train", *settings, *options.settings, "--cluster", cluster, "--json"]))
        rows.append({"plan": " ".join(line.split()), "predicted_s": told["step_s"], "predicted_bytes": told["memory_total"],
                     "terms": {t["term"]: t["seconds"] for t in told["time"]}})
    for _ in range(options.rounds):
        for line, row in zip(lines, rows):
            seen[line] += windows(options, settings_of(line, text), row["predicted_s"])
    for line, row in zip(lines, rows):
        if seen[line]:
            row["measured_s"], row["least_s"] = statistics.median(seen[line]), min(seen[line])
            row["time_error"] = row["predicted_s"] / row["measured_s"] - 1
        if not options.no_memory:
            idle = memory_at_rest(options, line, text, rest)
            most = (1 + MEMORY_MARK) * row["predicted_bytes"] + idle
            row["measured_bytes"] = memory_at_work(options, settings_of(line, text), most) - idle
            row["memory_error"] = row["predicted_bytes"] / row["measured_bytes"] - 1
        print_row(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", nargs="?", default="build/trireme")
    parser.add_argument("--cluster")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json")
    options, settings = parser.parse_known_args()
    if "=" in options.trireme:
        settings.insert(0, options.trireme)
        options.trireme = "build/trireme"
    options.settings = settings
    lines = [line for line in PLANS.strip().splitlines() if any(word in line for word in options.only.split(","))]
    with tempfile.TemporaryDirectory(prefix="trireme-self-") as folder:
        text = os.path.join(folder, "text.txt")
        make_text(text, 400)
        cluster = options.cluster or os.path.join(folder, "cluster.yaml")
        if not options.cluster:
            print(output([options.trireme, "bench", "--write", cluster]))
        print(f"{'plan: model, type, layout, sequence, micro, passes':58} {'predicted':>10} {'measured':>10} {'least':>10} "
              f"{'off':>8} {'predicted':>10} {'measured':>10} {'off':>8}   ms; MiB")
        rows = measure(options, lines, text, cluster)
    good = summary(rows, "time_error", TIME_MARK, "step time")
    good &= summary(rows, "memory_error", MEMORY_MARK, "memory")
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)
    return 0 if good else 9


if __name__ == "__main__":
    sys.exit(main())
