# SPDX-License-Identifier: MIT
# Writes the binary seeds of tests/fuzz/corpus; those that are text were written by hand, and inputs that a fuzzer found are
# kept beside them.  Usage: make_corpus.py CORPUS_FOLDER
import base64
import gzip
import json
import os
import struct
import sys


def safetensors(tensors, metadata=None, pad=True):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    if pad:
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write(folder, name, data):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def megatron(sizes, offsets, bounds, dtype=8, modes=b""):
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, dtype, len(sizes), len(bounds)) + struct.pack(f"<{len(sizes)}i", *sizes)
            + struct.pack(f"<{len(offsets)}q", *offsets) + struct.pack(f"<{len(bounds)}q", *bounds) + modes)


def llmc(magic, version, count, tokens):
    return struct.pack("<3i", magic, version, count) + bytes(1012) + tokens


def zstd(data):
    """One frame of one uncompressed block."""
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(data)]) + struct.pack("<I", len(data) << 3 | 1)[:3] + data


def byte_alphabet():
    """The characters that GPT-2's vocabulary has for the 256 bytes, in their order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def tokenizer(model, **parts):
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    return json.dumps({**whole, **parts}, ensure_ascii=False, separators=(",", ":")).encode()


def special(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def bpe(tokens, merges, **more):
    vocab = {token: number for number, token in enumerate(tokens)}
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges, **more}


def tokenizers(folder):
    letters = byte_alphabet() + ["he", "ll", "hell", "\u0120w", "or", "\u0120wor"]
    merges = ["h e", "l l", "he ll", "\u0120 w", "o r", "\u0120w or"]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = [special(262, "<|endoftext|>")]
    write(folder, "tokenizer/gpt2.json", tokenizer(bpe(letters, merges), added_tokens=end, pre_tokenizer=level, decoder=level,
                                                   post_processor={**level, "trim_offsets": False}))
    pattern = "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+(?!\\S)|\\s+"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    sequence = {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]}
    pairs = [merge.split(" ") for merge in merges]
    write(folder, "tokenizer/llama3.json", tokenizer(bpe(letters, pairs, ignore_merges=True), added_tokens=end,
                                                     normalizer={"type": "NFC"}, pre_tokenizer=sequence, decoder=level))
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581", "H", "e", "l", "o", "ll", "\u2581H"]
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    meta = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    back = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                             {"type": "ByteFallback"}, {"type": "Fuse"},
                                             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    write(folder, "tokenizer/llama2.json",
          tokenizer(bpe(pieces, ["l l", "\u2581 H"], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                    added_tokens=[special(i, pieces[i]) for i in range(3)], normalizer=meta, post_processor=template,
                    decoder=back))
    scores = [["<unk>", 0], ["</s>", 0], ["\u2581", -2.5], ["e", -3], ["l", -3.5], ["o", -4], ["llo", -5], ["\u2581Hel", -6.25]]
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    write(folder, "tokenizer/unigram.json",
          tokenizer({"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": False}, added_tokens=[special(1, "</s>")],
                    normalizer={"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
                    pre_tokenizer=space, decoder=space))
    words = {token: number for number, token in enumerate(["[UNK]", "[CLS]", "hello", "wor", "##ld", "##l", "1", ","])}
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    write(folder, "tokenizer/wordpiece.json",
          tokenizer({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                     "max_input_chars_per_word": 100, "vocab": words}, normalizer=bert,
                    pre_tokenizer={"type": "BertPreTokenizer"},
                    decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}))


def token_files(folder):
    """The first byte is for the target: bit 0 a Megatron index, bit 1 text, bit 2 a vocabulary, bit 3 an end token."""
    u16, u32 = struct.pack("<6H", 1, 2, 10, 299, 10, 4), struct.pack("<6I", 1, 2, 10, 70000, 10, 4)
    write(folder, "token_file/text", b"\x0aone\ntwo\n\nthree")
    write(folder, "token_file/nanogpt", b"\x0c" + u16)
    write(folder, "token_file/llmc_u16", b"\x08" + llmc(20240520, 1, 6, u16))
    write(folder, "token_file/llmc_u32", b"\x08" + llmc(20240801, 7, 6, u32))
    write(folder, "token_file/pair", b"\x01" + megatron([20, 30, 14], [0, 40, 100], [0, 1, 1, 3]))
    write(folder, "token_file/pair_scattered", b"\x05" + megatron([4, 6, 2], [100, 0, 60], [0, 2, 3], modes=b"\0\1\0"))
    write(folder, "token_file/pair_i64", b"\x01" + megatron([16], [0], [0, 1], dtype=5))


def text_files(folder):
    """The first byte is for the target: bit 0 JSON lines, bit 1 documents end at blank lines."""
    plain = "one\r\ntwo\n\n\n  \nthree größe\n".encode()
    lines = b'{"text": "one\\ntwo", "id": 1}\n\n{"id": [2], "text": "gr\\u00f6\\u00dfe \\ud83d\\ude42"}\r\n{"text": ""}\n{"text": "last"}'
    write(folder, "text_file/plain", b"\x00" + plain)
    write(folder, "text_file/paragraphs", b"\x02\xef\xbb\xbf" + plain)
    write(folder, "text_file/lines", b"\x01" + lines)
    write(folder, "text_file/gzip", b"\x02" + gzip.compress(plain, mtime=0) + gzip.compress(plain, mtime=0))
    write(folder, "text_file/zstd", b"\x01" + zstd(lines) + zstd(b"\n" + lines))


def charsmaps(folder):
    with open(os.path.join(os.path.dirname(__file__), "../data/token/albert.json")) as file:
        parts = json.load(file)["normalizer"]["normalizers"]
    precompiled = next(part["precompiled_charsmap"] for part in parts if part["type"] == "Precompiled")
    write(folder, "charsmap/albert", base64.b64decode(precompiled))
    write(folder, "charsmap/one_unit", struct.pack("<II", 4, 0) + b"a\0")


def texts(folder):
    """The first byte is for the target: which tokenizer."""
    samples = ["Hello, world's  12345!\n\n\t <|endoftext|></s>[MASK]", "  \u00a0\u3000 \r\n\r\n  x\u200b ", "naïve café e\u0301\u0323 ﬁ Ⅷ ½",
               "日本語の文章、한국어 กำ ไทย", "🙂👩\u200d🚀🇩🇪 a\u0300b", "x = [i**2 for i in range(10_000)]  # 3.14e-5", "İSTANBUL ǅ ẞ ß ς"]
    for i, sample in enumerate(samples):
        write(folder, f"encode/{i}", bytes([i * 2]) + sample.encode())
    write(folder, "encode/bytes", b"\x04" + bytes(range(256)))
    write(folder, "encode/broken", b"\x06ok \xff\xc3( \xe2\x82 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf\0 ok")
    write(folder, "encode/run", b"\x05" + b"a" * 300 + b" " * 100 + b"1" * 100)


def main(folder):
    f32 = struct.pack("<6f", 1, -2, 3.5, float("inf"), float("nan"), 1e-40)
    every = [(t.lower(), t, [2, 3], bytes(range(6 * n))) for t, n in
             [("F64", 8), ("F32", 4), ("F16", 2), ("BF16", 2), ("F8_E4M3", 1), ("F8_E5M2", 1), ("I64", 8), ("I32", 4), ("U8", 1)]]
    write(folder, "safetensors/every_type", safetensors(every, {"format": "pt"}))
    write(folder, "safetensors/plain", safetensors([("w", "F32", [2, 3], f32), ("b", "F32", [6], f32)], pad=False))
    write(folder, "safetensors/scalar_and_empty", safetensors([("s", "F32", [], f32[:4]), ("e", "F32", [0, 5], b"")], {}))
    write(folder, "safetensors/none", safetensors([]))
    tokenizers(folder)
    charsmaps(folder)
    texts(folder)
    token_files(folder)
    text_files(folder)


main(sys.argv[1])
