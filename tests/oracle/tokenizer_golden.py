# SPDX-License-Identifier: MIT
"""What the `tokenizers` library makes of tests/data/token/corpus.txt, for tests/token/test_token_golden.c.

  tokenizer_golden.py train FOLDER    make the small tokenizers FOLDER/NAME.json (only when there shall be new ones: training
                                      is not the same on every run)
  tokenizer_golden.py golden FOLDER   write FOLDER/NAME.golden from FOLDER/NAME.json and FOLDER/corpus.txt
  tokenizer_golden.py check FOLDER    compare them instead; exit 1 and say where they differ

A golden file has a line with the numbers that the template puts before a text, and one with those after it; then, for every
text, one line of fields with tabs between:

  numbers, without the template        "5 7*3 9" is 5 7 7 7 9
  numbers where special tokens that the text spells are text, "=": the same
  the text that the numbers within the template decode to, escaped as in corpus.txt, where "=" is the text itself, repaired
  the same without special tokens

Texts that are not UTF-8 are repaired first, as bytes.decode("utf-8", "replace") does it. Characters whose properties the
library and the C libraries may know from different versions of Unicode are not in the corpus.
"""
import json
import struct
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# ---- the corpus


def unescape(line):
    """The bytes of a line of the corpus."""
    count, data = 1, line
    if line.startswith(b"\\*"):
        number, data = line[2:].split(b" ", 1)
        count = int(number)
    out, i = bytearray(), 0
    simple = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"e": b""}
    while i < len(data):
        if data[i : i + 1] != b"\\":
            out.append(data[i])
            i += 1
        elif data[i + 1 : i + 2] == b"x":
            out.append(int(data[i + 2 : i + 4], 16))
            i += 4
        else:
            out += simple[data[i + 1 : i + 2]]
            i += 2
    return bytes(out) * count


def escape(text, whole):
    """The text of a field; `whole` inside it is written "="."""
    if whole and whole in text:
        before, after = text.split(whole, 1)
        return escape(before, None) * bool(before) + "=" + escape(after, None) * bool(after)
    out = []
    for character in text:
        if character == "\\":
            out.append("\\\\")
        elif ord(character) < 32 or ord(character) == 127 or character == "=":
            out.append("\\x%02X" % ord(character))
        else:
            out.append(character)
    return "".join(out) or "\\e"


def read_corpus(folder):
    with open(folder + "/corpus.txt", "rb") as file:
        lines = file.read().split(b"\n")
    return [unescape(line).decode("utf-8", "replace") for line in lines if line and not line.startswith(b"#")]


# ---- making tokenizers


def finish(tokenizer, change=None):
    """The tokenizer as an object of its file, changed."""
    data = json.loads(tokenizer.to_str())
    if change:
        change(data)
    return data


def train_bpe(tokenizer, texts, vocab, special=(), alphabet=None, limit=1000):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(special), show_progress=False, limit_alphabet=limit,
        initial_alphabet=alphabet if alphabet is not None else pre_tokenizers.ByteLevel.alphabet(), max_token_length=24,
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)


def special(*texts):
    return [AddedToken(text, special=True) for text in texts]


def gpt2(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    train_bpe(t, texts, 900)
    t.add_special_tokens(special("<|endoftext|>"))
    return finish(t)


def llama3(texts):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    t.decoder = decoders.ByteLevel()
    train_bpe(t, texts, 900)

    def whole_words(data):  # tokens that no merge makes
        vocab = data["model"]["vocab"]
        for word in ["Ġwater", "ĠLebensmittel", "ĠjumpsĠover", "ab", "123", "ĠæĹ¥æľ¬"]:
            vocab.setdefault(word, len(vocab))

    t = Tokenizer.from_str(json.dumps(finish(t, whole_words)))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    t.add_special_tokens(special(*names))
    begin = t.token_to_id(names[0])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single=names[0] + " $A", pair=f"{names[0]} $A {names[0]}:1 $B:1", special_tokens=[(names[0], begin)]
        ),
    ])  # fmt: skip
    return finish(t)


def qwen2(texts):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    train_bpe(t, texts, 900)
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    return finish(t)


def deepseek(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(False, use_regex=False),
    ])  # fmt: skip
    t.decoder = decoders.ByteLevel()
    train_bpe(t, texts, 700)
    t.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>"))
    return finish(t)


def roberta(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train_bpe(t, texts, 600, special("<s>", "<pad>", "</s>", "<unk>"))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return finish(t)


BYTES = ["<0x%02X>" % byte for byte in range(256)]


def with_byte_tokens(data):
    """A trained BPE model with <unk> <s> </s> and the tokens of bytes put in front, as SentencePiece numbers them."""
    model = data["model"]
    front = ["<unk>", "<s>", "</s>"] + BYTES
    rest = [text for text, _ in sorted(model["vocab"].items(), key=lambda item: item[1]) if text not in front]
    model["vocab"] = {text: number for number, text in enumerate(front + rest)}
    model.update(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    data["added_tokens"] = [
        dict(id=i, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        for i, text in enumerate(front[:3])
    ]
    data["pre_tokenizer"] = data.pop("later_pre_tokenizer", None)


def sentencepiece(texts, normalizer, decoder, later=None):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.decoder = decoder
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    train_bpe(t, texts, 700, alphabet=[], limit=160)

    def change(data):
        if later:
            other = Tokenizer(models.BPE())
            other.pre_tokenizer = later
            data["later_pre_tokenizer"] = json.loads(other.to_str())["pre_tokenizer"]
        with_byte_tokens(data)

    return finish(t, change)


def llama2(texts):
    return sentencepiece(
        texts,
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )


def metaspace(texts):
    return sentencepiece(
        texts,
        None,
        decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
        pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    )


def gemma(texts):
    return sentencepiece(
        texts,
        normalizers.Replace(" ", "▁"),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        pre_tokenizers.Split(" ", "merged_with_previous"),
    )


def mostly_latin(texts):
    """So that a small vocabulary has room for pieces beside all characters, and none is a special token again."""
    return [text for text in texts if "<" not in text and all(character < "\u0250" for character in text)]


def train_unigram(t, texts, vocab, front, unknown="<unk>"):
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=front, unk_token=unknown, show_progress=False, max_piece_length=16
    )
    t.train_from_iterator(texts, trainer)


def unigram(texts):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    train_unigram(t, mostly_latin(texts), 900, ["<pad>", "</s>", "<unk>"])
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))]
    )
    return finish(t)


def unigram_bytes(texts):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never"), decoders.Fuse()])
    train_unigram(t, mostly_latin(texts), 600, ["<unk>", "<s>", "</s>"])

    def change(data):  # whole texts are words; ties; a piece that loses to its unknown characters
        data["pre_tokenizer"] = None
        vocab = data["model"]["vocab"]
        low = min(score for _, score in vocab)
        known = {text for text, _ in vocab}
        more = [("▁".join(["the", "water"]), -6.0), ("ฉฉ", 2 * low - 30), ("aa", low), ("aaa", low), ("aaaa", low), ("▁▁", low)]
        vocab += [[text, score] for text, score in more if text not in known]
        vocab += [[text, low - 1] for text in BYTES]
        data["model"]["byte_fallback"] = True

    return finish(t, change)


# ---- SentencePiece's precompiled map: a double array after Aoe, in the form of Darts-clone


def double_array(keys):
    """Units for {bytes: value}. Offsets stay below 2^21, so no unit needs the longer form."""
    trie = {}
    for key, value in sorted(keys.items()):
        node = trie
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value  # no key holds a zero byte
    units, used = {0: 0}, {0}

    def place(node, at):
        offset = 1
        while (at ^ offset) in used or any((at ^ offset ^ byte) in used for byte in node):
            offset += 1
        base = at ^ offset
        used.add(base)
        used.update(base ^ byte for byte in node)
        units[at] = units[at] | offset << 10 | (1 << 8 if 0 in node else 0)
        for byte, below in node.items():
            units[base ^ byte] = (1 << 31 | below) if byte == 0 else byte
        for byte, below in node.items():
            if byte != 0:
                place(below, base ^ byte)

    place(trie, 0)
    return [units.get(i, 0) for i in range((max(used) | 255) + 1)]


def precompiled(replacements):
    blob, at = b"", {}
    for text in sorted(set(replacements.values())):
        at[text] = len(blob)
        blob += text.encode() + b"\0"
    units = double_array({key.encode(): at[text] for key, text in replacements.items()})
    array = b"".join(struct.pack("<I", unit) for unit in units)
    return struct.pack("<I", len(array)) + array + blob


CHARSMAP = {
    "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": " ", "\u0085": "", "\u00ad": "", "\x1b": "",
    "ﬁ": "fi", "ﬂ": "fl", "ﷺ": "صلى الله عليه وسلم", "½": "1/2", "Ａ": "A", "ａ": "a", "１": "1", "㎏": "kg", "①": "1", "ｶﾞ": "ガ",
    "ｶ": "カ", "ﾞ": "\u3099", "e\u0301": "é", "e\u0301\u0323": "x", "n\u0303": "ñ", "A\u030a": "Å", "a\u0300": "à", "™": "TM",
    "…": "...", "’": "'", "“": '"', "”": '"', "\u1100\u1161": "가", "各": "gè", "👍": "+1", "❤\ufe0f": "<3", "1\ufe0f": "one", "ß": "ss",
}  # fmt: skip


def albert(texts):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
        normalizers.Precompiled(precompiled(CHARSMAP)),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Strip(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ])  # fmt: skip
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    train_unigram(t, mostly_latin(texts), 500, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)]
    )
    return finish(t)


def bert(texts):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False, limit_alphabet=300
    )
    t.train_from_iterator(texts, trainer)
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    return finish(t)


def wordlevel(texts):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence(
        [normalizers.Strip(left=True, right=False), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.WordLevelTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    t.train_from_iterator(texts, trainer)
    return finish(t)


def added(texts):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.NFC()])
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    train_bpe(t, texts, 500)
    t.add_special_tokens(special("<|endoftext|>"))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<r>", rstrip=True, special=True)])
    t.add_tokens([
        AddedToken("<lr>", lstrip=True, rstrip=True),
        AddedToken("word", single_word=True),
        AddedToken("Große", normalized=True),
        AddedToken("STRASSE", normalized=False),
        AddedToken("<A>", normalized=True),
        AddedToken("<a>b", normalized=False),
        AddedToken("<a>bc", normalized=False),
        AddedToken("tok", normalized=False),
        AddedToken("tokk", normalized=False),
        AddedToken("水是", normalized=True),
        AddedToken("ñ", normalized=True, single_word=True),
    ])  # fmt: skip
    return finish(t)


MAKERS = [gpt2, llama3, qwen2, deepseek, roberta, llama2, metaspace, gemma, unigram, unigram_bytes, albert, bert, wordlevel, added]


def train(folder):
    # Not every reader of JSON takes a zero byte in the name of a member.
    texts = [text.replace("\0", "") for text in read_corpus(folder) if len(text) < 400]
    words = [" ".join(text.split(" ")[i:]) for text in texts for i in range(min(4, text.count(" ")))]
    for maker in MAKERS:
        data = maker(texts + words)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        Tokenizer.from_str(text)
        with open(f"{folder}/{maker.__name__}.json", "w", encoding="utf-8", newline="\n") as file:
            file.write(text.replace('"model":', '\n"model":').replace('"vocab":', '\n"vocab":') + "\n")


# ---- golden numbers


def numbers(ids):
    out, i = [], 0
    while i < len(ids):
        n = 1
        while i + n < len(ids) and ids[i + n] == ids[i]:
            n += 1
        out.append(f"{ids[i]}*{n}" if n > 1 else str(ids[i]))
        i += n
    return " ".join(out)


def golden(folder, name, texts):
    tokenizer = Tokenizer.from_file(f"{folder}/{name}.json")
    plain = Tokenizer.from_file(f"{folder}/{name}.json")
    plain.encode_special_tokens = True
    around = tokenizer.encode("", add_special_tokens=True).ids
    front = tokenizer.encode("a", add_special_tokens=True).ids
    inside = len(tokenizer.encode("a", add_special_tokens=False).ids)
    nbefore = next(n for n in range(len(around) + 1) if front == around[:n] + front[n : n + inside] + around[n:])
    before, after = around[:nbefore], around[nbefore:]
    lines = [numbers(before), numbers(after)]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.encode(text, add_special_tokens=True).ids
        assert whole == before + ids + after, (name, text)
        other = plain.encode(text, add_special_tokens=False).ids
        decoded = tokenizer.decode(whole, skip_special_tokens=False)
        skipped = tokenizer.decode(whole, skip_special_tokens=True)
        fields = [numbers(ids), "=" if other == ids else numbers(other)]
        fields += [escape(decoded, text), escape(skipped, text)]
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"


def main():
    command, folder = sys.argv[1:]
    if command == "train":
        train(folder)
        return 0
    texts, wrong = read_corpus(folder), 0
    for maker in MAKERS:
        path = f"{folder}/{maker.__name__}.golden"
        now = golden(folder, maker.__name__, texts)
        if command == "golden":
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(now)
            continue
        with open(path, encoding="utf-8", newline="\n") as file:
            then = file.read()
        for number, (a, b) in enumerate(zip(then.split("\n"), now.split("\n")), 1):
            if a != b:
                print(f"{path}:{number}: tokenizers {tokenizers.__version__} has {b[:200]!r}, the file {a[:200]!r}")
                wrong += 1
        wrong += then.count("\n") != now.count("\n")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
