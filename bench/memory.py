#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether `trireme train` takes the memory that it predicts.

memory.py [TRIREME] [--models gpt2-1m,gpt2-char,gpt2] [--types f32,bf16] [--ranks 1,2,3] [SETTING=VALUE ...]

Each case is a short run, last checkpoint included, whose processes are looked at every few milliseconds: private memory and
shared memory, each page counted once whoever maps it (Pss_Anon and Pss_Shmem of /proc/PID/smaps_rollup). What processes take
that train nothing (code, libraries, buffers of files) is measured by a run of a model of next to no size and taken off. The
prediction is memory_total of `trireme train --json`. Settings are passed on to every run. Needs nothing but Python and Linux.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

# preset: sequence, sequences per rank and pass, vocabulary (the text is bytes, which would make it 256), steps
SHAPES = {"gpt2-1m": (256, 8, 256, 40), "gpt2-char": (256, 8, 256, 8), "gpt2": (256, 1, 50257, 3)}
OTHER = (256, 1, None, 3)
NOTHING = ["model=gpt2-tiny", "model.layers=1", "model.width=4", "model.heads=1", "model.vocab=256"]
PERIOD = 0.02


def settings_of(model):
    sequence, micro, vocab, steps = SHAPES.get(model, OTHER)
    settings = [f"model={model}", "model.weights=random", f"data.sequence={sequence}", f"train.steps={steps}"]
    return settings + ([f"model.vocab={vocab}"] if vocab else []), micro


def family(pid):
    """A process and those that it started."""
    found = [pid]
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += family(int(child))
    except OSError:
        pass  # it has just ended
    return found


def taken(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                        total += 1024 * int(line.split()[1])
        except OSError:
            pass
    return total


def predicted(command):
    plan = json.loads(subprocess.run(command + ["--json"], check=True, capture_output=True, text=True).stdout)
    return plan.get("memory_total", plan["memory_bytes"] * plan["ranks"])


def measured(command):
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, taken(family(process.pid)))
            time.sleep(PERIOD)
        said = process.stderr.read().strip()
    if process.returncode != 0:
        sys.exit(f"memory.py: {' '.join(command)}: {said or process.returncode}")
    return peak


def case(trireme, text, settings, ranks, micro, kind, more):
    with tempfile.TemporaryDirectory() as folder:
        command = [trireme, "train", *settings, f"data.path={text}", f"batch.micro={micro}", f"batch.sequences={micro * ranks}",
                   "run.threads=1", f"run.ranks={ranks}", f"precision.compute={kind}", "train.eval_samples=4",
                   f"train.folder={folder}/run", *more]
        want = predicted(command)
        return want, measured(command)


def mib(nbyte):
    return f"{nbyte / 2**20:11.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", nargs="?", default="build/trireme")
    parser.add_argument("--models", default="gpt2-1m,gpt2-char,gpt2")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--ranks", default="1,2,3")
    parser.add_argument("more", nargs="*", metavar="SETTING=VALUE")
    a = parser.parse_intermixed_args()
    if not os.access(a.trireme, os.X_OK):
        parser.error(f"{a.trireme} is not a program; give the path of trireme")
    worst = 1.0
    print(f"{'model':<12} {'type':<5} {'ranks':>5} {'predicted':>11} {'measured':>11} {'at rest':>11}   MiB; (measured - at rest) / predicted")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("".join(f"line {i} of a text that nobody reads\n" for i in range(20000)))
        text.flush()
        rest = {}
        for model in a.models.split(","):
            settings, micro = settings_of(model)
            for kind in a.types.split(","):
                for ranks in map(int, a.ranks.split(",")):
                    if (kind, ranks) not in rest:
                        want, got = case(a.trireme, text.name, NOTHING + ["data.sequence=8", "train.steps=200"], ranks, 1, kind, a.more)
                        rest[kind, ranks] = max(0, got - want)
                    want, got = case(a.trireme, text.name, settings, ranks, micro, kind, a.more)
                    ratio = (got - rest[kind, ranks]) / want
                    worst = max(worst, ratio, 1 / ratio, key=lambda r: abs(r - 1))
                    print(f"{model:<12} {kind:<5} {ranks:>5} {mib(want)} {mib(got)} {mib(rest[kind, ranks])}   {ratio:.3f}", flush=True)
    print(f"worst: off by a factor of {worst:.3f}")


if __name__ == "__main__":
    main()
