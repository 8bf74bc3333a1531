#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch and trireme over the same training steps, in one run.

step_peer.py [TRIREME] [--models gpt2,gpt2-char] [--rounds 2] [--steps N] [SETTING=VALUE ...]

Two models: GPT-2 124M (sequence 1024, batch 4) and a character-level one of 10.8M parameters (sequence 256, batch 32), random
tokens, no dropout. A step is forward, backward, clipping of the gradient norm, AdamW. The peer is written as anybody would
write it, runs on all processors, and may use all that its version has: f32, bf16 autocast, torch.compile and fused AdamW where
they exist. (Debian's torch multiplies f32 with the system's BLAS; with the reference one it says nothing.) Ours is
`trireme bench step`, f32 and bf16, ranks x threads on the same processors. Every mode is a process of its own; rounds of them
alternate, and a mode's figure is the median over its rounds. A mode of the peer that cannot come near its fastest is given up
early, which is said. Needs a Python with torch; SETTINGs go to trireme.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

#                layers width heads vocab sequence batch
SHAPES = {"gpt2": (12, 768, 12, 50257, 1024, 4), "gpt2-char": (6, 384, 6, 65, 256, 32)}
WARM_UPS, LEAST, MOST, SECONDS = 3, 5, 50, 10  # at least LEAST steps, as many as fill SECONDS
SLOW_PRODUCTS = 10  # GFLOP/s of one processor: less is no vector code
HOPELESS = 4  # times the seconds of the fastest mode so far


def processors():
    return len(os.sched_getaffinity(0))


# ---- the peer: one mode in this process


def build(shape):
    import torch
    import torch.nn.functional as F
    from torch import nn

    layers, width, heads, vocab, sequence, _ = shape
    sdpa = getattr(F, "scaled_dot_product_attention", None)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.fcproj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.register_buffer("future", torch.ones(sequence, sequence, dtype=torch.bool).triu(1), persistent=False)

        def attention(self, q, k, v):
            if sdpa:
                return sdpa(q, k, v, is_causal=True)
            scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(width // heads))
            return scores.masked_fill(self.future, -math.inf).softmax(-1) @ v

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
            x = x + self.proj(self.attention(q, k, v).transpose(1, 2).reshape(b, t, c))
            return x + self.fcproj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(sequence, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.ln_f = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocab, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
            self.head.weight = self.wte.weight

        def forward(self, token, target):
            x = self.blocks(self.wte(token) + self.wpe.weight)
            return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), target.flatten())

    return Model()


def optimizer_of(model):
    import torch

    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    common = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        return torch.optim.AdamW(groups, fused=True, **common)
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(groups, **common)


def peer(name, mode, limit, steps):
    """Prints one JSON object: seconds of each step, or why there are none."""
    import torch

    shape = SHAPES[name]
    vocab, sequence, batch = shape[3:]
    torch.manual_seed(1)
    torch.set_num_threads(processors())
    model = build(shape)
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = optimizer_of(model)
    call = torch.compile(model) if "compile" in mode else model
    tokens = [torch.randint(vocab, (2, batch, sequence)) for _ in range(4)]

    def step(i):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" in mode):
            loss = call(*tokens[i % len(tokens)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begin, loss.item()

    warm, first = [], 0.0
    for i in range(WARM_UPS):
        seconds, loss = step(i)
        warm.append(seconds)
        first = first or loss
        if limit and seconds > limit * (1 if i > 0 else 3) and (i > 0 or "compile" not in mode):
            print(json.dumps({"parameters": parameters, "slow": seconds}))
            return
    # A model that has learned nothing yet is wrong by about the logarithm of its choices.
    if abs(first - math.log(vocab)) > 0.5:
        sys.exit(f"the peer's first loss is {first:.3f}, not about {math.log(vocab):.3f}: its model is not what it should be")
    count = steps or min(MOST, max(LEAST, int(SECONDS / warm[-1])))
    print(json.dumps({"parameters": parameters, "seconds": [step(i)[0] for i in range(count)]}))


# ---- both


def run(command, timeout=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"given up after {timeout:.0f} s"
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return json.loads(done.stdout.strip()), None


def products():
    """GFLOP/s of this torch's matrix products by type. It may have been built with, or sit on, a library without any speed."""
    import torch

    torch.set_num_threads(processors())
    rates = {}
    for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        x, weight = torch.randn(1024, 768).to(dtype), torch.nn.Linear(768, 3072).to(dtype)
        best = math.inf
        with torch.no_grad():
            for _ in range(5):
                begin = time.perf_counter()
                weight(x)
                best = min(best, time.perf_counter() - begin)
        rates[kind] = 2e-9 * 1024 * 768 * 3072 / best
    return rates


def modes(rates):
    """The most promising first."""
    import torch

    kinds = sorted(rates, key=rates.get, reverse=True)
    return kinds + ([f"{kind} compile" for kind in kinds] if hasattr(torch, "compile") else [])


class Table:
    """Tokens per second of every mode, by round."""

    def __init__(self, tokens):
        self.tokens, self.rows, self.why = tokens, {}, {}

    def add(self, mode, seconds):
        self.rows.setdefault(mode, []).append(seconds)
        print(f"  . {mode}: {seconds * 1e3:.1f} ms a step", file=sys.stderr, flush=True)

    def rate(self, mode):
        return self.tokens / statistics.median(self.rows[mode])

    def show(self):
        for mode in dict.fromkeys([*self.rows, *self.why]):
            if mode in self.rows:
                medians = [self.tokens / s for s in self.rows[mode]]
                spread = f"{min(medians):.0f}..{max(medians):.0f} in {len(medians)} rounds"
                print(f"  {mode:<24} {self.rate(mode):10.1f} tokens/s   {spread}")
            else:
                print(f"  {mode:<24}          - {self.why[mode]}")

    def best(self, owner):
        mine = [mode for mode in self.rows if mode.startswith(owner)]
        return max(mine, key=self.rate) if mine else None


def measure_ours(a, name, table):
    sequence, batch = SHAPES[name][4:]
    cores = processors()
    layouts = f"{cores}x1,1x{cores}" if cores > 1 and batch % cores == 0 else f"1x{cores}"
    for kind in ("f32", "bf16"):
        command = [a.trireme, "bench", "step", name, f"precision.compute={kind}", f"data.sequence={sequence}",
                   f"batch.sequences={batch}", f"bench.layouts={layouts}", "--json", *a.more]
        found, why = run(command + ([f"train.steps={a.steps}"] if a.steps else []))
        for row in found["results"] if found else []:
            table.add(f"trireme {kind} {row['name']}", row["seconds"])
        if why:
            table.why[f"trireme {kind}"] = why


def measure_peer(a, name, table, rates):
    for mode in modes(rates):
        label = f"torch {mode}"
        rate = rates[mode.split()[0]]
        if rate * 2 * HOPELESS < max(rates.values()):
            table.why[label] = f"given up: its products reach {rate:.1f} GFLOP/s, others {max(rates.values()):.1f}"
        if label in table.why:
            continue
        best = table.best("torch")
        limit = HOPELESS * statistics.median(table.rows[best]) if best else 0
        command = [sys.executable, __file__, "--peer", name, mode, str(limit), str(a.steps)]
        found, why = run(command, 300 + 30 * limit if best else None)
        if found and "seconds" in found:
            table.add(label, statistics.median(found["seconds"]))
        elif found:
            table.why[label] = f"given up: a step takes {found['slow']:.1f} s"
        else:
            table.why[label] = why


def compare(a, name, rates):
    shape = SHAPES[name]
    table = Table(shape[4] * shape[5])
    print(f"\n{name}: sequence {shape[4]}, batch {shape[5]}, {processors()} processors", flush=True)
    for _ in range(a.rounds):
        measure_ours(a, name, table)
        measure_peer(a, name, table, rates)
    table.show()
    ours, theirs = table.best("trireme"), table.best("torch")
    if ours and theirs:
        print(f"  {ours} / {theirs}: {table.rate(ours) / table.rate(theirs):.2f}", flush=True)
    return bool(ours and theirs)


def main():
    if sys.argv[1:2] == ["--peer"]:
        name, mode, limit, steps = sys.argv[2:6]
        return peer(name, mode, float(limit), int(steps))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", nargs="?", default="build/trireme")
    parser.add_argument("--models", default="gpt2,gpt2-char")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="of every mode; 0: 5 or more")
    parser.add_argument("more", nargs="*", metavar="SETTING=VALUE")
    a = parser.parse_intermixed_args()
    if not os.access(a.trireme, os.X_OK):
        parser.error(f"{a.trireme} is not a program; give the path of trireme")
    try:
        import torch
    except ImportError:
        sys.exit(f"step_peer.py: {sys.executable} has no torch; start this with a Python that has it (Debian: python3-torch, /usr/bin/python3)")
    rates = products()
    said = ", ".join(f"{kind} {rate:.1f}" for kind, rate in rates.items())
    print(f"torch {torch.__version__}, {processors()} threads; its products, GFLOP/s: {said}")
    if rates["f32"] < SLOW_PRODUCTS * processors():
        print("f32 products are slow: this torch has no BLAS worth the name; Debian's gets one with libopenblas0-pthread")
    unknown = [name for name in a.models.split(",") if name not in SHAPES]
    if unknown:
        parser.error(f"no shape for {unknown[0]}; there are {', '.join(SHAPES)}")
    results = [compare(a, name, rates) for name in a.models.split(",")]
    return 0 if all(results) else 1


sys.exit(main())
