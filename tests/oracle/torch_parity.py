# SPDX-License-Identifier: MIT
"""The command against PyTorch, end to end: train the same GPT-2 with both and compare everything that can be seen.

    python3 tests/oracle/torch_parity.py COMMAND FOLDER      (PyTorch 1.13 or later; FOLDER: for texts and runs)

The training part of the text is one batch, so each step sees all of it and the order of samples does not matter. Its
last sample is short and does not fill its row, so a mean over sequences or ranks instead of over tokens shows.
A first run with a learning rate of 0 writes the initial weights; PyTorch starts from them, in float64 and in
float32, with torch.optim's optimizers, torch's clipping and the learning rate by the formula written here.
Compared with both: loss, gradient norm, clip factor, learning rate and validation loss of every step, from
metrics.jsonl, and the final weights, from model.safetensors as the independent reader next to this file reads it.

Left out by name is the K part of c_attn.bias: it adds the same amount to all scores of a query, so its true gradient
is zero, and AdamW makes steps out of the rounding errors that remain. The end of the list turns the question round:
PyTorch with one thing wrong on purpose has to be noticed. Prints a line per comparison; exits 1 on a mismatch.
"""
import importlib.util
import json
import math
import os
import subprocess
import sys

import numpy as np
import torch
import torch.nn.functional as F

import read_safetensors

LAYERS, WIDTH, HEADS, VOCAB, SEQUENCE, EPS = 3, 64, 4, 256, 48, 1e-5
SAMPLES, MICRO, STEPS, WARMUP, CLIP, DECAY, MOMENTUM = 16, 4, 10, 3, 1.0, 0.1, 0.9
BETAS, ADAM_EPS = (0.9, 0.95), 1e-6
VALIDATION = 0.2  # of the text
PEAK = {"adamw": 1e-3, "sgd": 0.1}  # learning rates; the lowest is a tenth
WEIGHTS = {"adamw": 1e-4, "sgd": 1e-5}  # how far final weights may be apart
EXACT = {"loss": 1e-5, "val_loss": 1e-5, "grad_norm": 1e-4, "clip": 1e-4, "lr": 0.0}
ROUGH = {"loss": 1e-2, "val_loss": 1e-2, "lr": 0.0}  # bf16


# ---- text
def make_text(path):
    """Words in an order that a small generator decides; returns the training and the validation part."""
    words = "the oar bank rows as one hull and every keel cuts grey water when drums call time over waves".split()
    train = (SAMPLES - 1) * SEQUENCE + 17 + 1  # the last sample has 17 tokens; every text has one token more
    size, state, text = round(train / (1 - VALIDATION)), 12345, ""
    while len(text) < size:
        state = (state * 1103515245 + 12345) % 2 ** 31
        text += words[state // 65536 % len(words)] + ("\n" if state // 1024 % 7 == 0 else " ")
    data = text[:size].encode("ascii")
    with open(path, "wb") as file:
        file.write(data)
    cut = len(data) - round(VALIDATION * len(data))
    assert cut == train, (cut, train)
    return data[:cut], data[cut:]


def samples_of(part):
    """Inputs and targets of all samples; what the last one lacks has target -1."""
    pairs = len(part) - 1
    rows = -(-pairs // SEQUENCE)
    token = torch.zeros(rows * SEQUENCE, dtype=torch.int64)
    target = torch.full((rows * SEQUENCE,), -1, dtype=torch.int64)
    token[:pairs] = torch.tensor(list(part[:-1]))
    target[:pairs] = torch.tensor(list(part[1:]))
    return token.reshape(rows, SEQUENCE), target.reshape(rows, SEQUENCE)


# ---- the command
def settings(kind):
    given = {"model.layers": LAYERS, "model.width": WIDTH, "model.heads": HEADS, "data.sequence": SEQUENCE,
             "data.val_fraction": VALIDATION, "batch.sequences": SAMPLES, "batch.micro": MICRO, "optim.kind": kind,
             "optim.clip": CLIP, "optim.weight_decay": DECAY, "lr.kind": "cosine", "lr.lr": PEAK[kind], "lr.min_lr": PEAK[kind] / 10,
             "lr.warmup": WARMUP, "train.steps": STEPS, "train.log_every": 1, "train.eval_every": 1}
    if kind == "adamw":
        return {**given, "optim.beta1": BETAS[0], "optim.beta2": BETAS[1], "optim.eps": ADAM_EPS}
    return {**given, "optim.momentum": MOMENTUM, "optim.nesterov": "true"}


def train_with_command(command, text, folder, given, ranks=1):
    """Runs it; returns the metrics by name, one number per step, and the final weights by name."""
    given = {**given, "data.path": text, "train.folder": folder}
    line = [command, "train", "-n", str(ranks)] + [f"{key}={value}" for key, value in given.items()]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(line)}: exit {done.returncode}\n{done.stdout.decode(errors='replace')}")
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        records = [json.loads(row) for row in file]
    assert [r["step"] for r in records] == list(range(1, given["train.steps"] + 1)), "a step without a record"
    return {name: [r[name] for r in records] for name in EXACT}, read_weights(checkpoint_of(folder))


def checkpoint_of(folder):
    with open(os.path.join(folder, "checkpoints", "latest"), encoding="utf-8") as file:
        return os.path.join(folder, "checkpoints", file.read().strip())


def read_weights(checkpoint):
    _, tensors = read_safetensors.read(os.path.join(checkpoint, "model.safetensors"))
    return {name: np.array(values, dtype=np.float64) for name, (_, values) in tensors.items()}


# ---- the model in PyTorch; weights by their Hugging Face names, matrices [in, out]
def expected_shapes():
    c = WIDTH
    shapes = {"transformer.wte.weight": (VOCAB, c), "transformer.wpe.weight": (SEQUENCE, c),
              "transformer.ln_f.weight": (c,), "transformer.ln_f.bias": (c,)}
    for i in range(LAYERS):
        for name, nin, nout in (("attn.c_attn", c, 3 * c), ("attn.c_proj", c, c), ("mlp.c_fc", c, 4 * c),
                                ("mlp.c_proj", 4 * c, c)):
            shapes[f"transformer.h.{i}.{name}.weight"] = (nin, nout)
            shapes[f"transformer.h.{i}.{name}.bias"] = (nout,)
        for name in ("ln_1", "ln_2"):
            shapes[f"transformer.h.{i}.{name}.weight"] = shapes[f"transformer.h.{i}.{name}.bias"] = (c,)
    return shapes


def conv(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def norm(w, name, x):
    return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], EPS)


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attention(w, name, x):
    rows, length, _ = x.shape
    q, k, v = (part.reshape(rows, length, HEADS, -1).transpose(1, 2)
               for part in conv(w, name + ".c_attn", x).split(WIDTH, dim=2))
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(future, -math.inf)
    mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
    return conv(w, name + ".c_proj", mixed)


def logits_of(w, token):
    x = w["transformer.wte.weight"][token] + w["transformer.wpe.weight"][: token.shape[1]]
    for i in range(LAYERS):
        h = f"transformer.h.{i}"
        x = x + attention(w, h + ".attn", norm(w, h + ".ln_1", x))
        x = x + conv(w, h + ".mlp.c_proj", gelu_new(conv(w, h + ".mlp.c_fc", norm(w, h + ".ln_2", x))))
    return norm(w, "transformer.ln_f", x) @ w["transformer.wte.weight"].T


def loss_of(w, samples):
    token, target = samples
    return F.cross_entropy(logits_of(w, token).reshape(-1, VOCAB), target.reshape(-1), ignore_index=-1)


# ---- training in PyTorch
def lr_at(kind, step):
    peak, low = PEAK[kind], PEAK[kind] / 10
    if step < WARMUP:
        return peak * (step + 1) / WARMUP
    x = (step - WARMUP) / max(1, STEPS - WARMUP)
    return low + (peak - low) * (1 + math.cos(math.pi * x)) / 2


def make_optimizer(kind, w, decay_all, nesterov):
    decays = [p for p in w.values() if p.dim() == 2 or decay_all]
    others = [p for p in w.values() if not (p.dim() == 2 or decay_all)]
    groups = [{"params": decays, "weight_decay": DECAY}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=1, betas=BETAS, eps=ADAM_EPS)
    return torch.optim.SGD(groups, lr=1, momentum=MOMENTUM, nesterov=nesterov)


def train_with_torch(kind, dtype, start, parts, steps=STEPS, clip=CLIP, decay_all=False, nesterov=True,
                     lr_shift=0):
    w = {name: torch.tensor(values, dtype=dtype, requires_grad=True) for name, values in start.items()}
    optimizer = make_optimizer(kind, w, decay_all, nesterov)
    metrics = {name: [] for name in EXACT}
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(kind, step + lr_shift)
        optimizer.zero_grad()
        loss = loss_of(w, parts[0])
        loss.backward()
        total = torch.nn.utils.clip_grad_norm_(w.values(), clip).item()
        optimizer.step()
        with torch.no_grad():
            validation = loss_of(w, parts[1]).item()
        seen = {"loss": loss.item(), "val_loss": validation, "grad_norm": total,
                "clip": min(1.0, clip / (total + 1e-6)), "lr": float("%.9g" % lr_at(kind, step + lr_shift))}
        for name, value in seen.items():
            metrics[name].append(value)
    return metrics, {name: p.detach().numpy().astype(np.float64) for name, p in w.items()}


# ---- comparing
def compare_metric(ours, theirs):
    """The largest relative difference and the step where it is."""
    apart = [abs(a - b) / max(abs(b), 1e-300) for a, b in zip(ours, theirs)]
    worst = max(range(len(apart)), key=lambda i: math.inf if math.isnan(apart[i]) else apart[i])
    return apart[worst], f"step {worst + 1}"


def compare_weights(ours, theirs):
    """The largest difference and the tensor where it is, without K biases (see above)."""
    worst, where = 0.0, "-"
    for name, values in theirs.items():
        apart = np.abs(ours[name] - values)
        if name.endswith("attn.c_attn.bias"):
            apart = np.delete(apart, np.s_[WIDTH:2 * WIDTH])
        if not apart.max() <= worst:
            worst, where = float(apart.max()), name[len("transformer."):]
    return worst, where


class Table:
    """Prints a line per comparison and remembers whether all of them held."""

    def __init__(self):
        self.failed = 0
        print(f"{'run':<26} {'quantity':<10} {'against':<14} {'largest':>9} {'allowed':>8}  where")

    def row(self, run, quantity, against, found, allowed):
        largest, where = found
        bad = not largest <= allowed
        self.failed += bad
        print(f"{run:<26} {quantity:<10} {against:<14} {largest:9.2e} {allowed:8.0e}  {where}{'  MISMATCH' if bad else ''}",
              flush=True)


def compare(table, run, kind, ours, against, theirs, limits):
    for quantity, allowed in limits.items():
        table.row(run, quantity, against, compare_metric(ours[0][quantity], theirs[0][quantity]), allowed)
    if limits is EXACT:
        table.row(run, "weights", against, compare_weights(ours[1], theirs[1]), WEIGHTS[kind])


def differences(kind, ours, theirs):
    """What the limits notice, in words."""
    found = [(q, compare_metric(ours[0][q], theirs[0][q])[0], EXACT[q]) for q in EXACT]
    found.append(("weights", compare_weights(ours[1], theirs[1])[0], WEIGHTS[kind]))
    return ", ".join(f"{q} {apart:.1e}" for q, apart, allowed in found if not apart <= allowed)


# ---- the parts of the check
def check_initial(weights):
    shapes = {name: values.shape for name, values in weights.items()}
    assert shapes == expected_shapes(), sorted(set(shapes.items()) ^ set(expected_shapes().items()))


def check_fast(table, kind, run_command, torch_runs):
    """The fast kernels, all steps, on one and two ranks; returns the run on one."""
    plain = None
    for ranks in (1, 2):
        name = f"{kind} f32 cpu n={ranks}"
        ours = run_command(name, settings(kind), ranks)
        plain = plain or ours
        for against in ("float64", "float32"):
            compare(table, name, kind, ours, against, torch_runs[against], EXACT)
        name = f"{kind} bf16 cpu n={ranks}"
        ours = run_command(name, {**settings(kind), "precision.compute": "bf16"}, ranks)
        compare(table, name, kind, ours, "float32", torch_runs["float32"], ROUGH)
    return plain


def check_reference(table, kind, run_command, start, parts):
    """The reference kernels are slow: only the steps of the warm-up, whose learning rates do not depend on the rest."""
    given = {**settings(kind), "run.kernels": "reference", "train.steps": WARMUP}
    theirs = train_with_torch(kind, torch.float64, start, parts, steps=WARMUP)
    for ranks in (1, 2):
        name = f"{kind} f32 reference n={ranks}"
        compare(table, name, kind, run_command(name, given, ranks), "float64", theirs, EXACT)
    if kind == "adamw":  # once is enough for the slowest of all
        ours = run_command("adamw bf16 reference n=2", {**given, "precision.compute": "bf16"}, 2)
        compare(table, "adamw bf16 reference n=2", kind, ours, "float64", theirs, ROUGH)


def check_strength(table, kind, ours, start, parts, exact):
    """The comparison above would say little if nothing was clipped, or weights hardly moved, or mistakes passed."""
    clipped = sum(c < 1 for c in exact[0]["clip"])
    moved = compare_weights(exact[1], start)[0]
    print(f"{kind}: {clipped} of {STEPS} steps were clipped, weights moved by up to {moved:.1e}")
    if not 0 < clipped or not moved > 30 * WEIGHTS[kind]:
        table.failed += 1
        print(f"{kind}: too little happens for the comparison to mean anything  MISMATCH")
    wrong = {"sgd": {"momentum without Nesterov": {"nesterov": False},
                     "the next step's learning rate": {"lr_shift": 1}},
             "adamw": {"decay on every tensor": {"decay_all": True}, "no clipping": {"clip": 1e9}}}
    for what, change in wrong[kind].items():
        noticed = differences(kind, ours, train_with_torch(kind, torch.float32, start, parts, **change))
        table.failed += not noticed
        print(f"{kind}, PyTorch with {what}: {'noticed by ' + noticed if noticed else 'NOT NOTICED  MISMATCH'}", flush=True)


def check_transformers(table, checkpoint, token):
    """Where the Python package transformers is at hand: its GPT-2 loads our folder and gives the logits expected."""
    if not importlib.util.find_spec("transformers"):
        return
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config.from_json_file(os.path.join(checkpoint, "config.json"))).eval().double()
    weights = {name: torch.tensor(values) for name, values in read_weights(checkpoint).items()}
    odd = model.load_state_dict(weights, strict=False)
    missing = [n for n in odd.missing_keys if not n.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight"))]
    assert not missing and not odd.unexpected_keys, (missing, odd.unexpected_keys)
    model.tie_weights()
    with torch.no_grad():
        apart = (model(token).logits - logits_of(weights, token)).abs().max().item()
    table.row("checkpoint", "logits", "transformers", (apart, "-"), 1e-6)


def main(command, folder):
    torch.set_num_threads(1)  # the tensors are small: more threads only wait for each other
    text = os.path.join(folder, "text.txt")
    parts = [samples_of(part) for part in make_text(text)]

    def run_command(name, given, ranks):
        return train_with_command(command, text, os.path.join(folder, name.replace(" ", "-")), given, ranks)

    still = {**settings("sgd"), "train.steps": 1, "lr.lr": 0, "lr.min_lr": 0}
    start = run_command("initial", still, 1)[1]
    check_initial(start)
    table = Table()
    for kind in ("sgd", "adamw"):
        torch_runs = {str(d).split(".")[1]: train_with_torch(kind, d, start, parts) for d in (torch.float64, torch.float32)}
        compare(table, f"{kind} PyTorch float32", kind, torch_runs["float32"], "float64", torch_runs["float64"], EXACT)
        plain = check_fast(table, kind, run_command, torch_runs)
        check_reference(table, kind, run_command, start, parts)
        check_strength(table, kind, plain, start, parts, torch_runs["float64"])
    check_transformers(table, checkpoint_of(os.path.join(folder, "adamw-f32-cpu-n=1")), parts[0][0][:4])
    print(f"{table.failed} mismatches with PyTorch {torch.__version__}" if table.failed
          else f"all alike with PyTorch {torch.__version__}")
    return 1 if table.failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: torch_parity.py COMMAND FOLDER")
    sys.exit(main(sys.argv[1], sys.argv[2]))
