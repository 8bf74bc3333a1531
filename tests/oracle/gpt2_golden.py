# SPDX-License-Identifier: MIT
"""Golden numbers of a tiny GPT-2 from PyTorch: loss, logits, every gradient, ten SGD and ten AdamW steps.

Run it from the repository root with any Python 3 that has PyTorch 1.13 or later (Debian: python3-torch):

    python3 tests/oracle/gpt2_golden.py > tests/data/oracle/gpt2_tiny.txt

The model is put together here from torch functions: pre-norm blocks, learned positions, gelu in tanh form,
causal attention, output weights tied to the embedding. Weights mean what they mean in the Hugging Face
GPT-2 but are stored row-major [out, in]. Weights and tokens come from formulas that tests/oracle/golden.h
repeats in C. Weights are rounded to float32; all arithmetic after that is in float64, so the figures are
exact at the nine digits printed. The optimizers are torch.optim's own. tests/oracle/golden.h reads the file.

File: lines that start with # are comments. A record is "KIND NAME COUNT" on a line, then COUNT numbers on the
lines after it. Kinds: loss, logits (name s.j: sequence s, position j), grad, gradnorm, sgd, sgd_loss, adamw,
adamw_loss. In the loss records of the optimizers number k is the loss after k steps.
"""
import math
import sys

import torch
import torch.nn.functional as F

VOCAB, POSITIONS, WIDTH, HEADS, LAYERS, EPS = 37, 16, 24, 3, 2, 1e-5
SEQUENCES, LENGTH, STEPS = 3, 11, 10


def shapes():
    """Names and shapes of all tensors, in the order that numbers them."""
    c = WIDTH
    yield "wte", (VOCAB, c)
    yield "wpe", (POSITIONS, c)
    for layer in range(LAYERS):
        prefix = f"h.{layer}."
        yield prefix + "ln_1.weight", (c,)
        yield prefix + "ln_1.bias", (c,)
        yield prefix + "attn.c_attn.weight", (3 * c, c)
        yield prefix + "attn.c_attn.bias", (3 * c,)
        yield prefix + "attn.c_proj.weight", (c, c)
        yield prefix + "attn.c_proj.bias", (c,)
        yield prefix + "ln_2.weight", (c,)
        yield prefix + "ln_2.bias", (c,)
        yield prefix + "mlp.c_fc.weight", (4 * c, c)
        yield prefix + "mlp.c_fc.bias", (4 * c,)
        yield prefix + "mlp.c_proj.weight", (c, 4 * c)
        yield prefix + "mlp.c_proj.bias", (c,)
    yield "ln_f.weight", (c,)
    yield "ln_f.bias", (c,)


def weight(t, i, shape, name):
    scale = 0.4 if len(shape) == 2 else 0.1
    value = 0.5 * scale * math.sin(0.7 * i + 1.3 * t + 0.1 * (i % 7))
    return 1.0 + value if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else value


def make_weights():
    weights = {}
    for t, (name, shape) in enumerate(shapes()):
        flat = [weight(t, i, shape, name) for i in range(math.prod(shape))]
        exact = torch.tensor(flat, dtype=torch.float64)
        weights[name] = exact.to(torch.float32).to(torch.float64).reshape(shape).requires_grad_(True)
    return weights


def make_batch():
    def token(s, j):
        return (7 * s + 5 * j + j * j) % VOCAB

    def target(s, j):
        return -1 if (s + 2 * j) % 5 == 0 else token(s, j + 1)

    rows = [(s, range(LENGTH)) for s in range(SEQUENCES)]
    return (torch.tensor([[token(s, j) for j in js] for s, js in rows]),
            torch.tensor([[target(s, j) for j in js] for s, js in rows]))


def attention(w, prefix, x):
    batch, length, width = x.shape
    qkv = F.linear(x, w[prefix + "c_attn.weight"], w[prefix + "c_attn.bias"])
    q, k, v = (part.reshape(batch, length, HEADS, -1).transpose(1, 2) for part in qkv.split(width, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(width // HEADS)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(dim=-1) @ v
    return F.linear(mixed.transpose(1, 2).reshape(batch, length, width), w[prefix + "c_proj.weight"],
                    w[prefix + "c_proj.bias"])


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


def mlp(w, prefix, x):
    hidden = gelu_new(F.linear(x, w[prefix + "c_fc.weight"], w[prefix + "c_fc.bias"]))
    return F.linear(hidden, w[prefix + "c_proj.weight"], w[prefix + "c_proj.bias"])


def norm(w, name, x):
    return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], EPS)


def forward(w, token):
    x = F.embedding(token, w["wte"]) + w["wpe"][: token.shape[1]]
    for layer in range(LAYERS):
        prefix = f"h.{layer}."
        x = x + attention(w, prefix + "attn.", norm(w, prefix + "ln_1", x))
        x = x + mlp(w, prefix + "mlp.", norm(w, prefix + "ln_2", x))
    return F.linear(norm(w, "ln_f", x), w["wte"])


def loss_of(logits, target):
    return F.cross_entropy(logits.reshape(-1, VOCAB), target.reshape(-1), ignore_index=-1)


def train(optimizer, w, token, target):
    """Losses before every step and after the last, all on the same batch."""
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(forward(w, token), target)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses + [loss_of(forward(w, token), target).item()]


def record(kind, name, values):
    print(kind, name, len(values))
    for start in range(0, len(values), 8):
        print(" ".join("%.9g" % v for v in values[start:start + 8]))


def flat(tensor):
    return tensor.detach().reshape(-1).tolist()


def write_start(token, target):
    w = make_weights()
    logits = forward(w, token)
    loss = loss_of(logits, target)
    loss.backward()
    record("loss", "start", [loss.item()])
    for s, j in ((0, 0), (0, 10), (1, 3), (2, 10)):
        record("logits", f"{s}.{j}", flat(logits[s, j]))
    record("gradnorm", "all", [math.sqrt(sum((p.grad ** 2).sum().item() for p in w.values()))])
    for name, p in w.items():
        record("grad", name, flat(p.grad))


def write_trained(kind, w, optimizer, token, target):
    record(kind + "_loss", "steps", train(optimizer, w, token, target))
    for name, p in w.items():
        record(kind, name, flat(p))


def main():
    torch.set_num_threads(1)
    token, target = make_batch()
    print("# Made by tests/oracle/gpt2_golden.py with PyTorch", torch.__version__, "in float64; do not edit.")
    print(f"# vocab {VOCAB} positions {POSITIONS} width {WIDTH} heads {HEADS} layers {LAYERS} eps {EPS}")
    counted = (target >= 0).sum().item()
    print(f"# {SEQUENCES} sequences of {LENGTH} tokens, {counted} targets; mean loss over targets")
    print(f"# sgd: {STEPS} steps, lr 0.05; adamw: {STEPS} steps, lr 1e-3, betas 0.9 0.95, eps 1e-6,")
    print("# weight decay 0.1 on matrices and embeddings; no clipping")
    write_start(token, target)
    w = make_weights()
    write_trained("sgd", w, torch.optim.SGD(w.values(), lr=0.05), token, target)
    w = make_weights()
    groups = [{"params": [p for p in w.values() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in w.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-6)
    write_trained("adamw", w, optimizer, token, target)


if __name__ == "__main__":
    sys.exit(main())
