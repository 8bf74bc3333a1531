# SPDX-License-Identifier: MIT
"""Loads a model folder with Hugging Face transformers and prints its logits for some tokens as JSON.

    python3 tests/oracle/load_transformers.py FOLDER 5 17 3

prints {"model_type": ..., "parameters": number of them, "logits": one list per token, "loss": mean cross-entropy of
every token after the first}. Arithmetic is float32 with eager attention, whatever type the file has. Tensors that are
missing, unexpected or of another shape are an error. Needs PyTorch and transformers; nothing is fetched.
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers


def main():
    folder, token = sys.argv[1], [int(word) for word in sys.argv[2:]]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True)
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    with torch.no_grad():
        row = torch.tensor([token])
        out = model.eval()(row, labels=row, use_cache=False)
    print(json.dumps({"model_type": model.config.model_type,
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "loss": out.loss.item() if len(token) > 1 else None,
                      "logits": out.logits[0].tolist()}))


if __name__ == "__main__":
    sys.exit(main())
