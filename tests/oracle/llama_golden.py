# SPDX-License-Identifier: MIT
"""Golden numbers of tiny models of the Llama family from Hugging Face transformers: loss, logits, gradients.

Run it from the repository root with a Python that has PyTorch and transformers (made with 2.6.0 and 4.57.1):

    python3 tests/oracle/llama_golden.py tests/data/oracle/llama

It writes CASE.json, the config.json as transformers saves it, and CASE.txt, the figures, for every case below. The
models are transformers' own classes with eager attention. They run twice: once as they are, in float32, and once with
every float32 inside them (norms, rotary positions, softmax) replaced by float64, so that the figures are exact at the
digits printed; the first run checks the second. Epsilon and the scale of attention (head widths of 4 and 16) are
powers of two, so that they have no digits to lose where a float carries them.

Weights are a formula of the tensor's name and the element's number that tests/run/test_llama_oracle.c repeats in C,
rounded to float32; tokens and targets likewise. A record is "KIND NAME COUNT" on a line, then COUNT numbers (see
golden.h). Kinds: loss, logits (name s.j: sequence s, position j), and grad (name: the tensor). A grad record holds
the largest size of an element, the sum of g[i] * sin(i + 1) over all elements, the sum of squares, and then the
elements 0, s, 2s, ... for the smallest stride s that leaves at most twelve: every element counts, and the file stays
small.
"""
import math
import pathlib
import sys

import torch
import transformers

SEQUENCES, LENGTH, VOCAB = 3, 14, 23
FLOAT32 = torch.float32  # whatever the name means later
SIZES = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rope_theta=100.0, rms_norm_eps=2.0 ** -17)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=0.5, high_freq_factor=2.0,
              original_max_position_embeddings=32)
CASES = {
    "plain": transformers.LlamaConfig(**SIZES),
    "biased": transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, head_dim=16,
                                             tie_word_embeddings=True),
    "linear": transformers.LlamaConfig(**SIZES, rope_scaling=dict(rope_type="linear", factor=3.0)),
    "dynamic": transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": 8}, head_dim=16,
                                              rope_scaling=dict(rope_type="dynamic", factor=2.0)),
    "llama3": transformers.LlamaConfig(**SIZES, head_dim=16, rope_scaling=LLAMA3),
    "mistral": transformers.MistralConfig(**SIZES, head_dim=16, sliding_window=5),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True, use_sliding_window=True, sliding_window=4,
                                      max_window_layers=1),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True),
    "qwen3_biased": transformers.Qwen3Config(**SIZES, head_dim=16, attention_bias=True),
}


def weight(name, shape):
    number = sum(name.encode()) % 101
    is_norm = name.endswith("norm.weight")
    scale = 0.4 if len(shape) == 2 else 0.1
    flat = [0.5 * scale * math.sin(0.7 * i + 1.3 * number + 0.1 * (i % 7)) + is_norm for i in range(math.prod(shape))]
    return torch.tensor(flat, dtype=torch.float64).to(FLOAT32).reshape(shape)


def batch():
    def token(s, j):
        return (7 * s + 5 * j + j * j) % VOCAB

    def target(s, j):
        return -100 if (s + 2 * j) % 5 == 0 else token(s, j + 1)

    rows = [(s, range(LENGTH)) for s in range(SEQUENCES)]
    return (torch.tensor([[token(s, j) for j in js] for s, js in rows]),
            torch.tensor([[target(s, j) for j in js] for s, js in rows]))


def run(config, dtype):
    """Logits, loss, and the model with its gradients."""
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(dtype).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weight(name, parameter.shape))
    token, target = batch()
    logits = model(token, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), target.reshape(-1))
    loss.backward()
    return logits, loss, model


class Wide:
    """While inside, float32 means float64."""

    def __enter__(self):
        self.saved = torch.float32, torch.float, torch.Tensor.float
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.float32, torch.float, torch.Tensor.float = self.saved
        torch.set_default_dtype(torch.float32)


def record(out, kind, name, values):
    out.write(f"{kind} {name} {len(values)}\n")
    for start in range(0, len(values), 8):
        out.write(" ".join("%.12g" % v for v in values[start:start + 8]) + "\n")


def gradient_record(gradient):
    g = gradient.reshape(-1)
    i = torch.arange(1, len(g) + 1, dtype=torch.float64)
    stride = (len(g) + 11) // 12
    return [g.abs().max().item(), (g * i.sin()).sum().item(), (g * g).sum().item()] + g[::stride].tolist()


def check(narrow, exact):
    """The float32 run of unchanged transformers gives the same, to float32's precision."""
    assert abs(narrow[1].item() - exact[1].item()) < 1e-5
    assert (narrow[0].double() - exact[0]).abs().max() < 1e-4
    for (name, a), (_, b) in zip(narrow[2].named_parameters(), exact[2].named_parameters()):
        assert exact[0].dtype == b.grad.dtype == torch.float64
        assert (a.grad.double() - b.grad).abs().max() <= 1e-4 * b.grad.abs().max() + 1e-7, name


def write_case(folder, case, config):
    narrow = run(config, torch.float32)
    with Wide():
        exact = run(config, torch.float64)
    check(narrow, exact)
    config.architectures = [type(exact[2]).__name__]
    config.save_pretrained(folder)
    (folder / "config.json").rename(folder / f"{case}.json")
    with open(folder / f"{case}.txt", "w") as out:
        out.write(f"# Made by tests/oracle/llama_golden.py with PyTorch {torch.__version__} and transformers "
                  f"{transformers.__version__} in float64; do not edit.\n")
        record(out, "loss", "mean", [exact[1].item()])
        for s, j in ((0, 0), (0, LENGTH - 1), (2, 7)):
            record(out, "logits", f"{s}.{j}", exact[0][s, j].tolist())
        for name, parameter in exact[2].named_parameters():
            record(out, "grad", name.removeprefix("model."), gradient_record(parameter.grad))


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for case, config in CASES.items():
        write_case(folder, case, config)


if __name__ == "__main__":
    sys.exit(main())
