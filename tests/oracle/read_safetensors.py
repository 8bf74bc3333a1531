# SPDX-License-Identifier: MIT
# An independent reader and writer of safetensors files, numpy only, written from the format's description.
# It is the other side of the comparison in test_safetensors_python.sh and checks layout and values.
#   read_safetensors.py check PATH   the file written by test_safetensors --write
#   read_safetensors.py write PATH   a file for test_safetensors --read: other order, no padding
import json
import struct
import sys

import numpy as np

TYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8", "U8": "u1"}
TENSORS = ["F32", "F64", "F16", "BF16", "I32", "I64", "U8"]  # names are the same in lower case
ROWS, COLS = 11, 8


def expected(t):
    return t + np.arange(ROWS * COLS, dtype=np.float64).reshape(ROWS, COLS)


def to_numpy(dtype, shape, raw):
    values = np.frombuffer(raw, dtype=TYPES[dtype])
    if dtype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.reshape(shape)


def refuse_duplicates(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), "duplicate key"
    return dict(pairs)


def read(path):
    raw = open(path, "rb").read()
    (size,) = struct.unpack("<Q", raw[:8])
    assert size % 8 == 0, "header is not padded to a multiple of 8"
    text = raw[8 : 8 + size]
    assert text[:1] == b"{"
    header = json.loads(text.decode("utf-8"), object_pairs_hook=refuse_duplicates)
    metadata = header.pop("__metadata__", {})
    data, position, tensors = raw[8 + size :], 0, {}
    for name, row in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = row["data_offsets"]
        assert begin == position, f"{name} begins at {begin}, not {position}"
        tensors[name] = (row["dtype"], to_numpy(row["dtype"], row["shape"], data[begin:end]))
        position = end
    assert position == len(data), "bytes left over"
    return metadata, tensors


def check(path):
    metadata, tensors = read(path)
    assert metadata == {"format": "pt"}, metadata
    assert sorted(tensors) == sorted(name.lower() for name in TENSORS), sorted(tensors)
    for t, dtype in enumerate(TENSORS):
        found, values = tensors[dtype.lower()]
        assert found == dtype, (found, dtype)
        assert values.shape == (ROWS, COLS), values.shape
        assert np.array_equal(values.astype(np.float64), expected(t)), dtype


def write(path):
    header, data = {}, b""
    for t in reversed(range(len(TENSORS))):
        dtype = TENSORS[t]
        values = expected(t)
        if dtype == "BF16":
            raw = (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            raw = values.astype(TYPES[dtype]).tobytes()
        row = {"data_offsets": [len(data), len(data) + len(raw)], "shape": [ROWS, COLS], "dtype": dtype}
        header[dtype.lower()] = row
        data += raw
        if t % 2:  # an odd byte, so that what follows is not aligned
            header[f"odd{t}"] = {"dtype": "U8", "shape": [], "data_offsets": [len(data), len(data) + 1]}
            data += b"\x05"
    header = dict(sorted(header.items()))
    header["__metadata__"] = {"written by": "numpy"}
    text = json.dumps(header, indent=1).encode("utf-8")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    {"check": check, "write": write}[sys.argv[1]](sys.argv[2])
