#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes forms.json: small forms of tokenizer.json, and what Hugging Face's tokenizers makes of texts with them.

usage: python3 tests/data/tokenizers/make.py [--check]
       (pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0)

--check compares with the file instead, and exits with 1 if it has something else.

Each form is a change of one of six models, whose merges are trained on a few words. The file has a sum (FNV-1a,
32 bits) of each result: the ids of each text as "12 7 300 ", the texts that they decode to, and the lengths in bytes
of the pieces into which expressions split every character between two others. tiktoken and sentencepiece give the ids
of the same texts with small vocabularies of their own kinds."""
import io
import json
import pathlib
import random
import sys

import sentencepiece
import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# tiktoken's own form of cl100k_base; its $ is the end of each line in tokenizers, and that of the text in tiktoken
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
          r"\s+(?!\S)|\s")
POSIX = ["word", "digit", "punct", "space", "blank", "cntrl", "graph", "print", "xdigit", "ascii"]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>"]


def fnv(data):
    value = 0x811c9dc5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xffffffff
    return f"{value:08x}"


def texts():
    base = ["", " ", "  ", "a", " a", "hello world", " hello  world ", "it's the cat's 12345 mats", "don't  STOP\r\n\n x",
            "caf\u00e9 cafe\u0301", "na\u00efve \ufb01ne \u210c \u00bd", "\u6771\u4eac\u30bf\u30ef\u30fc \u4e2d\u6587,\u3002",
            "\u1112\u1161\u11ab\uae00", "\U0001f642\U0001f468\u200d\U0001f469 ok", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
            "\u0645\u0631\u062d\u0628\u0627 \u0663\u0664", "a\u00a0b\u2028c\u3000d\u180ee", "\u01c5\u02b0\u0130I\u0131",
            "<s>hello</s>", "a<s>b <s> c", "<|im_start|>the dog", "x <|im_start|> y", "<unk>", "\u2581a \u2581\u2581b",
            "a" * 70, "ab" * 40 + " " + "hello" * 12, "   \t\n\n  a", "tail   ", "\n", "1234567", "a1b22c333", "(a, b); c!",
            "\U00010d4a\U00013460\U0002ebf0", "x\U00033479y", "\u20ac5.00", "<0x41>", "under_score __init__", "\u00df\u1e9e",
            "x\u00b2y \u00b9a\u00b3 1\u00bdb\u00bc", "axb xx x", "\u0301a b",
            "2024-12345678"]
    parts = ["a", "he", "llo", " ", "  ", "\u2581", "'s", "12", "3", "\u00e9", "e\u0301", "\u4e2d", "\U0001f642", "!", "-", "_",
             "\n", "\t", "the", "<s>", "</s>", "<|im_start|>", "\u00a0", "Z", "\u0663", "\ufb01", "\u0130", ".", "\u200d", "wor"]
    draw = random.Random(1)
    return base + ["".join(draw.choice(parts) for _ in range(draw.randint(1, 14))) for _ in range(270 - len(base))]


def trained(pre_tokenizer, alphabet, extra):
    """vocab and merges; ids 0 to 3 are the special tokens, then `extra`."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizer
    words = "hello world the cat sat on the mat the dog it's don't lower newest widest caf\u00e9 \u4e2d\u6587 12 123 ab aab" \
            " a  b   c hello hello"
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, special_tokens=SPECIAL + extra,
                                  initial_alphabet=alphabet)
    tokenizer.train_from_iterator([words] * 3, trainer)
    return json.loads(tokenizer.to_str())["model"]


def added(content, i, normalized):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": normalized, "special": content.startswith("<") and "|" not in content}


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps, key="pretokenizers"):
    return {"type": "Sequence", key: list(steps)}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
PREPEND = {"type": "Prepend", "prepend": "\u2581"}
PIECES = sequence({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, key="decoders")


def metaspace(scheme, cuts):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cuts}


def forms():
    """name, model (byte, holes, char, fall, twice or small), changes of the model, changes of the file."""
    for behavior in ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]:
        for invert in [False, True]:
            for name, pattern in [("llama3", LLAMA3), ("digits", r"\d"), ("empty", r"(?=\d)")]:
                yield f"{name} {behavior} {invert}", "byte", {}, {
                    "pre_tokenizer": sequence(split(pattern, behavior, invert), BYTES)}
    for name, pattern in [("o200k", O200K), ("gpt2", GPT2), ("cl100k", CL100K), ("line ends", r"\d+$|^\w+|\s+$"),
                          ("intervals", r"\d{2}?[a-z]|(?:he|l){2}+|1{,2}|\d{1,2}+"),
                          ("digits in lines", r"(?:^|\s)\w+(?=\r?$)")]:
        yield f"{name} Removed True", "byte", {}, {"pre_tokenizer": sequence(split(pattern, "Removed", True), BYTES)}
        yield f"{name} Isolated", "byte", {}, {"pre_tokenizer": sequence(split(pattern, "Isolated"), BYTES)}
    yield "string", "byte", {}, {"pre_tokenizer": sequence(split(".", "Isolated", kind="String"), BYTES)}
    yield "words", "byte", {}, {"pre_tokenizer": sequence(split(r"\p{N}{1,3}", "Isolated"),
                                                          split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "Isolated"),
                                                          split(WORDS, "Isolated"), BYTES)}
    for name, pattern in [("w", r"\w+"), ("W", r"\W+"), ("d", r"\d+"), ("D", r"[\D]"), ("boundary", r"\b"),
                          ("not boundary", r"\B"), ("lines", r"^.|.$"), ("hex", r"\h+"), ("classes", r"[\W\d]+|\S"), ("words of POSIX", r"[[:word:]]+"),
                          ("signs of POSIX", r"[[:punct:][:blank:]]+|[^[:graph:]]"), ("repeated", r"\p{N}{1,3}+"),
                          ("repeated group", r"(?:[ab]|\x{6c}){2}+|o{,2}+"), ("perhaps", r"\d{2}?|l{1,2}?|{"),
                          ("dot", r"(?m:o.).|e.?"), ("options", r"(?im)THE.|(?-m:\n.)")]:
        yield "escape " + name, "byte", {}, {"pre_tokenizer": sequence(split(pattern, "Isolated"), BYTES)}
    for step in ["Whitespace", "WhitespaceSplit", "BertPreTokenizer"][:2]:
        yield step, "byte", {}, {"pre_tokenizer": sequence({"type": step}, BYTES)}
    yield "Punctuation", "byte", {}, {"pre_tokenizer": sequence({"type": "Punctuation", "behavior": "Isolated"}, BYTES)}
    yield "Digits", "byte", {}, {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, BYTES)}
    yield "CharDelimiterSplit", "byte", {}, {"pre_tokenizer": sequence({"type": "CharDelimiterSplit", "delimiter": "a"},
                                                                       BYTES)}
    yield "space in front of pieces", "byte", {}, {
        "pre_tokenizer": sequence(split(r"\d", "Isolated"), {**BYTES, "add_prefix_space": True, "use_regex": True})}
    for fuse in [False, True]:
        for unknown in [None, "<unk>"]:
            yield f"holes {unknown} {fuse}", "holes", {"unk_token": unknown, "fuse_unk": fuse}, {}
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
        yield form, "byte", {}, {"normalizer": {"type": form}}
    yield "strip", "byte", {}, {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}
    yield "accents", "byte", {}, {"normalizer": sequence({"type": "NFD"}, {"type": "StripAccents"}, key="normalizers")}
    yield "replace", "byte", {}, {"normalizer": {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}}
    pieces = {"pre_tokenizer": None, "decoder": PIECES}
    llama = {**pieces, "normalizer": sequence(PREPEND, REPLACE, key="normalizers")}
    for normalized in [False, True]:
        yield f"llama 2, added {normalized}", "fall", {"fuse_unk": True}, {**llama, "normalized": normalized}
    for scheme in ["first", "always", "never"]:
        for cuts in [False, True]:
            yield f"metaspace {scheme} {cuts}", "fall", {}, {
                **pieces, "pre_tokenizer": metaspace(scheme, cuts), "decoder": metaspace(scheme, cuts)}
    yield "gemma", "fall", {"fuse_unk": True}, {
        **pieces, "normalizer": REPLACE, "pre_tokenizer": split(" ", "MergedWithPrevious", kind="String"),
        "decoder": sequence(*PIECES["decoders"][:3], key="decoders")}
    yield "NFKC and pieces", "fall", {}, {**pieces, "normalizer": sequence({"type": "NFKC"}, PREPEND, REPLACE,
                                                                           key="normalizers")}
    for name, pattern in [("any number", "x*"), ("boundary", r"\b"), ("before b", "(?=b)")]:
        yield "replace " + name, "fall", {}, {**pieces, "normalizer": {"type": "Replace", "pattern": {"Regex": pattern},
                                                                       "content": "-"}}
    for name, step in [("strip", {"type": "Strip", "strip_left": True, "strip_right": False}),
                       ("accents", {"type": "StripAccents"}),
                       ("nothing for text", {"type": "Replace", "pattern": {"String": "a"}, "content": ""}),
                       ("nothing for matches", {"type": "Replace", "pattern": {"Regex": "[ a]*"}, "content": ""})]:
        yield "metaspace after " + name, "fall", {}, {**pieces, "normalizer": step,
                                                      "pre_tokenizer": metaspace("first", False)}
    yield "two merges of one pair", "twice", {}, {}
    yield "bytes in small letters", "small", {}, pieces
    for fuse in [False, True]:
        for unknown in [None, "<unk>"]:
            yield f"characters {unknown} {fuse}", "char", {"unk_token": unknown, "fuse_unk": fuse}, llama
    yield "words after spaces", "fall", {}, {**pieces, "pre_tokenizer": sequence({"type": "WhitespaceSplit"},
                                                                                 metaspace("first", True))}
    yield "ignore_merges", "fall", {"ignore_merges": True}, {**pieces, "pre_tokenizer": metaspace("always", True)}
    yield "characters, bytes decoded", "byte", {}, {"pre_tokenizer": None}
    yield "roberta", "byte", {}, {"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1],
                                                     "trim_offsets": True, "add_prefix_space": False}}


def document(models_, name, in_model, in_file):
    model = {**models_[name], **in_model}
    normalized = in_file.get("normalized", False)
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(content, i, normalized and i == 3) for i, content in enumerate(SPECIAL)],
            "normalizer": None, "pre_tokenizer": {**BYTES, "use_regex": True}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    base.update({key: value for key, value in in_file.items() if key != "normalized"})
    return {**base, "model": model}


def character_texts():
    """Every character of the table between a letter and a digit."""
    codes = [c for c in range(1, 0x34000) if not 0xd800 <= c < 0xe000]
    for begin in range(0, len(codes), 512):
        yield "".join("a" + chr(c) + "1" for c in codes[begin:begin + 512])


def character_sum(pattern):
    step = pre_tokenizers.Split(Regex(pattern), "isolated")
    data = bytearray()
    for text in character_texts():
        data += "".join(f"{len(piece.encode())} " for piece, _ in step.pre_tokenize_str(text)).encode()
    return fnv(data)


def sums(all_ids):
    return " ".join(fnv("".join(f"{i} " for i in ids).encode()) for ids in all_ids)


def tiktoken_forms(model, all_texts):
    """The bytes of each rank, and the ids. The tokens of two bytes show where characters are in one piece."""
    alphabet = {symbol: byte for byte, symbol in bytes_to_unicode().items()}
    ranks = [bytes([b]) for b in range(256)]
    ranks += [bytes(alphabet[symbol] for symbol in a + b) for a, b in model["merges"]]
    ranks += [b"a" + bytes([b]) for b in range(256)] + [bytes([b]) + b"1" for b in range(256)]
    ranks = list(dict.fromkeys(ranks))
    out = {"ranks": [rank.hex() for rank in ranks]}
    for name, pattern in [("llama3", LLAMA3), ("o200k", O200K)]:
        encoding = tiktoken.Encoding(name, pat_str=pattern, special_tokens={},
                                     mergeable_ranks={rank: i for i, rank in enumerate(ranks)})
        out[name + " ids"] = sums([encoding.encode_ordinary(text) for text in all_texts])
        out[name + " characters"] = fnv("".join(f"{i} " for text in character_texts()
                                                for i in encoding.encode_ordinary(text)).encode())
    return out


def bytes_to_unicode():
    """The symbol that stands for each byte in tokenizer.json, as GPT-2 chose them."""
    visible = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(hidden)}


def sentencepiece_forms(all_texts):
    """A .model file, the tokenizer.json that transformers makes of it with one more token, and their ids."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world the cat sat on the mat", "the dog it's don't caf\u00e9 12 123"] * 20),
        model_writer=file, model_type="bpe", vocab_size=330, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, hard_vocab_limit=False, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    vocab = {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    merges = []
    for piece, i in vocab.items():
        if model.is_byte(i) or model.is_control(i) or model.is_unknown(i):
            continue
        pairs = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        pairs = [pair for pair in pairs if pair[0] in vocab and pair[1] in vocab]
        merges += [list(pair) for pair in sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))]
    out = {"model": file.getvalue().hex(), "ids": sums(model.encode(all_texts))}
    for legacy in [True, False]:
        document = {"version": "1.0", "added_tokens": [added("<|im_start|>", len(vocab), False)],
                    "normalizer": sequence(PREPEND, REPLACE, key="normalizers") if legacy else None,
                    "pre_tokenizer": None if legacy else metaspace("first", False), "decoder": PIECES,
                    "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True,
                              "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges}}
        tokenizer = Tokenizer.from_str(json.dumps({"truncation": None, "padding": None, "post_processor": None,
                                                   **document}))
        name = "legacy" if legacy else "first"
        out[name] = document
        out[name + " ids"] = sums([tokenizer.encode(text, add_special_tokens=False).ids for text in all_texts])
    return out


def main():
    byte_alphabet = pre_tokenizers.ByteLevel.alphabet()
    all_models = {
        "byte": trained(pre_tokenizers.ByteLevel(add_prefix_space=False), byte_alphabet, []),
        "holes": trained(pre_tokenizers.ByteLevel(add_prefix_space=False), [], []),
        "char": trained(pre_tokenizers.Metaspace(), [], []),
        "fall": trained(pre_tokenizers.Metaspace(), [], [f"<0x{b:02X}>" for b in range(256)])}
    all_models["byte"]["unk_token"] = None
    all_models["fall"]["byte_fallback"] = True
    for name, piece in [("fall", "\u2581\u2581"), ("char", "\u2581\u2581")]:
        model = all_models[name]
        if piece not in model["vocab"]:
            model["vocab"][piece] = len(model["vocab"])
            model["merges"].append(["\u2581", "\u2581"])
    merges = all_models["byte"]["merges"]
    all_models["twice"] = {**all_models["byte"], "merges": merges + merges[:3]}
    all_models["small"] = {**all_models["fall"], "unk_token": "<unk>", "vocab": {
        token.lower() if token in ["<0xC2>", "<0xE4>"] else token: i
        for token, i in all_models["fall"]["vocab"].items()}}
    all_texts = texts()
    out = {"texts": all_texts, "models": all_models, "forms": [], "characters": {},
           "sentencepiece": sentencepiece_forms(all_texts)}
    for name, model, in_model, in_file in forms():
        tokenizer = Tokenizer.from_str(json.dumps(document(all_models, model, in_model, in_file)))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in all_texts]
        decoded = [tokenizer.decode(i, skip_special_tokens=False) for i in ids]
        out["forms"].append({"name": name, "model": model, "in_model": in_model, "in_file": in_file,
                             "ids": sums(ids),
                             "text": fnv("\n".join(decoded).encode())})
    out["tiktoken"] = tiktoken_forms(all_models["byte"], all_texts)
    for pattern in [LLAMA3, O200K, GPT2, WORDS, r"\w+", *[f"[[:{name}:]]+" for name in POSIX],
                    r"\p{Lu}+|\p{Ll}+|\p{M}|\p{Nd}|\p{P}+|\p{S}+|\p{Z}|\p{C}"]:
        out["characters"][pattern] = character_sum(pattern)
    lines = [json.dumps(key) + ": " + (json.dumps(value) if not isinstance(value, list) else
             "[\n" + ",\n".join(json.dumps(one) for one in value) + "\n]") for key, value in out.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if "--check" not in sys.argv:
        (HERE / "forms.json").write_text(text)
    elif text != (HERE / "forms.json").read_text():
        sys.exit("make.py: these libraries give something else than forms.json has")


main()
