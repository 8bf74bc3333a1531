#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast the `tokenizers` library turns text into tokens on one thread, in the same units as bench_tokenize.

tokenize_peer.py TOKENIZER.json TEXT [BENCH_TOKENIZE]: the text is cut into documents as bench_tokenize cuts it, and encoded
one by one and as a batch; time is processor time, median of three. With the path of bench_tokenize that runs first, so both
are measured in one run. Needs the Python package tokenizers.
"""
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402  (reads the environment when it is loaded)

WANTED, REPEAT = 4096, 3


def documents(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + WANTED)
        end = len(data) if end < 0 else end + 1
        yield data[at:end].decode("utf-8", "replace")
        at = end


def rate(work, nbyte):
    seconds = []
    for _ in range(REPEAT):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return nbyte / 1e6 / statistics.median(seconds)


def main():
    name, path = sys.argv[1:3]
    if len(sys.argv) > 3:
        subprocess.run([sys.argv[3], name, path], check=True)
    start = time.process_time()
    tokenizer = Tokenizer.from_file(name)
    print(f"peer opened in {1e3 * (time.process_time() - start):.0f} ms")
    texts = list(documents(path))
    nbyte = os.path.getsize(path)
    print(f"peer encode {rate(lambda: [tokenizer.encode(text).ids for text in texts], nbyte):.1f} MB/s")
    print(f"peer encode_batch {rate(lambda: tokenizer.encode_batch(texts), nbyte):.1f} MB/s")
    print(f"peer encode_batch_fast {rate(lambda: tokenizer.encode_batch_fast(texts), nbyte):.1f} MB/s")


main()
