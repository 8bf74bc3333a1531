#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pipelines on this machine: schedules side by side, each against its simulation and against its kernels alone.

pipeline.py [TRIREME] [--model gpt2] [--sequence 256] [--pp 2] [--microbatches 8] [--schedules gpipe,1f1b,zb_h1,...]
            [--steps 6] [--rounds 1] [--json FILE] [SETTING=VALUE ...]

Every round trains each schedule for some steps, in turn, with one micro-batch of one sequence each; the first step is left out.
Columns:
  step       ms, mean of the steps; the fastest round
  kernels    what the step would take if nothing but kernels took time: the simulator's critical path through the program with
             each operation's time inside pieces and optimizer. "over" is what the step takes beyond that
  simulated  the same with what operations took, and messages; "off" is how far that is from the step
  bubble     share of all ranks' time in which they compute nothing, as measured and as simulated
  memory     of the largest rank, as predicted, and of all ranks, as the system counts it
The row "dp" is data parallelism on as many ranks, for comparison. Ranks have one thread; on more ranks than cores the figures
mean nothing. Needs nothing but Python.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

WORDS = "the oar sea bank wind row ship of and trireme stroke drum port keel salt".split()


def make_text(path, kilobytes):
    seed, out, size = 7, [], 0
    while size < kilobytes * 1000:
        seed = (seed * 1103 + 12345) % 65536
        out.append(WORDS[seed % 15] + (".\n" if seed % 11 == 0 else " "))
        size += len(out[-1])
    with open(path, "w", encoding="ascii") as file:
        file.write("".join(out))


def command_of(options, schedule, text, folder):
    layout = ["parallel.pp=1"] if schedule == "dp" else [f"parallel.pp={options.pp}", f"parallel.schedule={schedule}"]
    vocab = ["model.vocab=50257"] if options.model == "gpt2" else []
    return [options.trireme, "train", f"model={options.model}", "model.weights=random", "data.tokenizer=byte", *vocab,
            f"data.path={text}", f"data.sequence={options.sequence}", "batch.micro=1",
            f"batch.sequences={options.microbatches}", f"train.folder={folder}", f"train.steps={options.steps}",
            "train.eval_samples=1", "train.eval_every=0", "train.log_every=1", "train.tensorboard=false",
            "checkpoint.background=false", "run.threads=1", "-n", str(options.pp), *layout, *options.settings]


def run(options, schedule, text):
    with tempfile.TemporaryDirectory(prefix="trireme-pipeline-") as folder:
        command = command_of(options, schedule, text, folder)
        plan = json.loads(subprocess.run(command + ["--json"], check=True, capture_output=True, text=True).stdout)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{schedule}: {done.stderr.strip()}")
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
    steps = [r for r in records if "loss" in r and r["step"] > 1]
    event = next((r for r in records if r.get("event") == "pipeline"), {})
    tokens = plan["batch"] * options.sequence
    return {"schedule": schedule, "step_s": event.get("step_s", sum(tokens / r["tokens_per_s"] for r in steps) / len(steps)),
            "kernels_s": event.get("step_kernels_s"), "simulated_s": event.get("step_simulated_s"),
            "bubble": event.get("bubble"), "bubble_simulated": event.get("bubble_simulated"),
            "rank_bytes": plan["memory_bytes"], "used_bytes": steps[-1]["memory_used"], "loss": steps[-1]["loss"]}


def percent(x, sign=""):
    return "-" if x is None else f"{100 * x:{sign}.1f}%"


def print_row(row, tokens):
    kernels, simulated = row["kernels_s"], row["simulated_s"]
    over = row["step_s"] / kernels - 1 if kernels else None
    off = simulated / row["step_s"] - 1 if simulated else None
    print(f"{row['schedule']:14} {row['step_s'] * 1e3:9.1f} {tokens / row['step_s']:9.1f}"
          f" {kernels * 1e3 if kernels else 0:9.1f} {percent(over, '+'):>7} {simulated * 1e3 if simulated else 0:10.1f}"
          f" {percent(off, '+'):>7} {percent(row['bubble']):>8} {percent(row['bubble_simulated']):>9}"
          f" {row['rank_bytes'] / 2**20:9.0f} {row['used_bytes'] / 2**20:9.0f}  {row['loss']:.5f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", nargs="?", default="build/trireme")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedules", default="gpipe,1f1b,zb_h1,zb_h2,zbv,dualpipe")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json")
    options, settings = parser.parse_known_args()
    if "=" in options.trireme:
        settings.insert(0, options.trireme)
        options.trireme = "build/trireme"
    options.settings = settings
    best = {}
    with tempfile.TemporaryDirectory(prefix="trireme-text-") as folder:
        text = os.path.join(folder, "text.txt")
        make_text(text, 40 * options.sequence // 100 + 200)
        for _ in range(options.rounds):
            for schedule in [*options.schedules.split(","), "dp"]:
                row = run(options, schedule, text)
                if schedule not in best or row["step_s"] < best[schedule]["step_s"]:
                    best[schedule] = row
    print(f"{options.model}, p = {options.pp}, m = {options.microbatches}, sequence {options.sequence}, "
          f"{os.cpu_count()} processors, {options.rounds} round{'s' if options.rounds != 1 else ''} of {options.steps} steps\n")
    print(f"{'schedule':14} {'step ms':>9} {'tokens/s':>9} {'kernels':>9} {'over':>7} {'simulated':>10} {'off':>7} "
          f"{'bubble':>8} {'simulated':>9} {'rank MiB':>9} {'all MiB':>9}  loss")
    for row in best.values():
        print_row(row, options.microbatches * options.sequence)
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(list(best.values()), file, indent=1)


if __name__ == "__main__":
    main()
