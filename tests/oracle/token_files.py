# SPDX-License-Identifier: MIT
# An independent writer and reader of token files (nanoGPT, llm.c, Megatron), numpy only, written from the formats' descriptions.
# It is the other side of the comparison in test_token_files_python.sh and made the files in tests/data/oracle/tokens.
#   token_files.py write FOLDER   the golden files that test_corpus reads
#   token_files.py check FOLDER   the files that test_corpus_writer --write FOLDER wrote
import os
import struct
import sys

import numpy as np

SIZES = [5, 1, 0, 12, 3, 2]  # of sequences
BOUNDS = [0, 1, 2, 3, 5, 6]  # of documents: the fourth has two sequences
NAMES = {1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 8: "u16"}
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


def tokens(vocab, count):
    return [(31 * i * i + 7 * i + 3) % vocab for i in range(count)]


def index(code, sizes, pointers, bounds, modes=b""):
    return (
        b"MMIDIDX\x00\x00"
        + struct.pack("<QBQQ", 1, code, len(sizes), len(bounds))
        + struct.pack(f"<{len(sizes)}i", *sizes)
        + struct.pack(f"<{len(sizes)}q", *pointers)
        + struct.pack(f"<{len(bounds)}q", *bounds)
        + modes
    )


def llmc(magic, version, letter, values):
    header = struct.pack("<256i", magic, version, len(values), *[0] * 253)
    return header + struct.pack(f"<{len(values)}{letter}", *values)


def put(folder, name, data):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def write(folder):
    total = sum(SIZES)
    put(folder, "nanogpt.bin", struct.pack(f"<{total}H", *tokens(65536, total)))
    put(folder, "llmc_u16.bin", llmc(20240520, 1, "H", tokens(65536, total)))
    put(folder, "llmc_u32.bin", llmc(20240801, 7, "I", tokens(128256, total)))
    for code, vocab in {1: 256, 2: 128, 3: 32768, 4: 128256, 5: 128256, 8: 65536}.items():
        name, data = "megatron_" + NAMES[code], np.array(tokens(vocab, total), TYPES[code])
        starts = np.cumsum([0] + SIZES[:-1]) * data.itemsize
        put(folder, name + ".bin", data.tobytes())
        put(folder, name + ".idx", index(code, SIZES, starts, BOUNDS, bytes(len(SIZES)) if code == 4 else b""))
    # The same tokens with the sequences in the reverse order in the file, and unused tokens between them.
    data, pointers, end = tokens(65536, total), [0] * len(SIZES), total
    raw = b""
    for s in reversed(range(len(SIZES))):
        raw += struct.pack("<H", 65535)
        pointers[s] = len(raw)
        raw += struct.pack(f"<{SIZES[s]}H", *data[end - SIZES[s] : end])
        end -= SIZES[s]
    put(folder, "megatron_scattered.bin", raw)
    put(folder, "megatron_scattered.idx", index(8, SIZES, pointers, BOUNDS))


def read_megatron(folder, name):
    raw = open(os.path.join(folder, name + ".idx"), "rb").read()
    assert raw[:9] == b"MMIDIDX\x00\x00", raw[:9]
    version, code, nsequence, nbound = struct.unpack_from("<QBQQ", raw, 9)
    assert version == 1, version
    sizes = np.frombuffer(raw, "<i4", nsequence, 34)
    pointers = np.frombuffer(raw, "<i8", nsequence, 34 + 4 * nsequence)
    bounds = np.frombuffer(raw, "<i8", nbound, 34 + 12 * nsequence)
    assert len(raw) == 34 + 12 * nsequence + 8 * nbound, len(raw)
    assert bounds[0] == 0 and bounds[-1] == nsequence, bounds
    data = open(os.path.join(folder, name + ".bin"), "rb").read()
    parts = [np.frombuffer(data, TYPES[code], n, p) for n, p in zip(sizes, pointers)]
    assert sum(p.nbytes for p in parts) == len(data), len(data)
    documents = [np.concatenate(parts[a:b]).tolist() for a, b in zip(bounds[:-1], bounds[1:])]
    return code, documents


def read_llmc(folder, name):
    raw = open(os.path.join(folder, name + ".bin"), "rb").read()
    header = np.frombuffer(raw, "<i4", 256)
    magic, version, count = header[:3].tolist()
    assert not header[3:].any()
    assert (magic, version) in ((20240520, 1), (20240801, 7)), (magic, version)
    values = np.frombuffer(raw[1024:], "<u2" if version == 1 else "<u4").tolist()
    assert count == len(values), count
    return version, values


def check(folder):
    # Documents of 0, 1, 2 ... 99 tokens, token i of all being tokens(vocab)[i].
    sizes, total = list(range(100)), sum(range(100))
    for name, vocab, expected in (("small", 50257, 8), ("large", 128256, 4)):
        values, starts = tokens(vocab, total), np.cumsum([0] + sizes)
        code, documents = read_megatron(folder, "megatron_" + name)
        assert code == expected, code
        assert documents == [values[starts[i] : starts[i + 1]] for i in range(100)], name
        version, found = read_llmc(folder, "llmc_" + name)
        assert version == (1 if vocab <= 65536 else 7), version
        assert found == values, name
    raw = open(os.path.join(folder, "nanogpt_small.bin"), "rb").read()
    assert np.frombuffer(raw, "<u2").tolist() == tokens(50257, total)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
