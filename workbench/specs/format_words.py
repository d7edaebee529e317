"""How people word a quantisation format: 'Q4_K - Medium' and 'q4km' mean 'q4_k_m', 'w4a16 awq' means 'awq 4bit'."""

import re

_LETTER = {"small": "s", "medium": "m", "large": "l"}
#: Words that say who made the weights, for which program or how, not what is in them.
_NOISE = re.compile(
    r"(?<![a-z])(gguf|ggml|imat|imatrix|llama\.cpp|quant(ized)?|weight-only|e[45]m[23]|pure"
    r"|a?sym(metric)?|bnb|bitsandbytes|hqq|aqlm|marlin|dynamic|static|compressed-tensors)(?![a-z])"
)
_KQUANT = re.compile(
    r"(ud[-_ ])?(i?q\d)[-_ ]?k(?:[-_ ]*(xxs|xs|xl|small|medium|large|[sml])(?:[_-]l)?)?"
)
_IQUANT = re.compile(r"(ud[-_ ])?(iq\d)[-_ ]?(xxs|xs|nl|[sm])(?: mix)?")
_BITS = re.compile(
    r"(?<![\d.])(\d+(?:\.\d+)?)[ -]?(?:bits?|bpw)|(?:int|[wq])(\d)(?!\d|_)|(?<![\w.])(\d\.\d+)"
)
_GROUP = re.compile(r"(?:g|gs|group(?:[ -]?size)?|block)[ =_-]*(\d+)|(\d+)g(?![a-z])")
#: A word that settles the scheme, wherever it stands -> its name; the first that occurs wins.
_SCHEMES = {
    "mxfp8": "mlx 8bit", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "fp8": "fp8", "nf4": "nf4",
    "autoround": "autoround", "gptq": "gptq", "awq": "awq", "exl2": "exl2", "exl3": "exl3",
    "dwq": "mlx", "mlx": "mlx",
}  # fmt: skip
_WORD = re.compile("|".join(_SCHEMES) + r"|community|lm|a(?:16|8|4)(?!\d)|per|size")
_PLAIN = {
    "q6": "q6_k", "q5": "q5_k_m", "q3": "q3_k_m", "q2": "q2_k", "16-bit": "f16", "1-bit": "iq1_m",
    "ternary": "tq2_0", "i2_s": "tq2_0", "1.58-bit": "tq2_0", "full precision": "bf16",
    "unquantized": "bf16", "unquantised": "bf16",
}  # fmt: skip


def reworded(text: str) -> str:
    """Return a spelling that `formats.normalise` knows for a wording in lower case, if there is one; else the text.

    The wordings are those of llama.cpp's file types, MLC, mlx-lm and Hugging Face repositories.
    """
    text = re.sub(r" - [\d.]+ bpw.*$", "", text)
    text = re.sub(r"\(\s*\)", "", _NOISE.sub("", text)).strip(" -_+,/")
    text = re.sub(r"^\(?([^()]*)\)?$", r"\1", text)
    text = re.sub(r"mixed[ _-](\d)[ _/-]\d( ?bits?)?", r"\1-bit", text)
    return _PLAIN.get(text) or _ggml(text) or _scheme(text) or _bits_only(text) or text


def stated_bits(text: str) -> float | None:
    """Return the bits per weight that a text states ('4.65 bpw', 'Q5_X'), scales of ggml types included, else None."""
    text = text.lower()
    if found := re.search(r"(\d+(?:\.\d+)?)[ -]?(?:bits?|bpw)", text):
        return float(found[1])
    if found := re.search(r"(?<![a-z])(?:mx|nv|b)?(?:f|fp|int|w)(\d+)", text):
        return float(found[1])
    found = re.search(r"(?<![a-z])i?q(\d)", text)
    return float(found[1]) + 0.5 if found else None  # a 16-bit scale per 32 weights


def _ggml(text: str) -> str | None:
    if found := _KQUANT.fullmatch(text.replace(" - ", " ")):
        letter = found[3] and "_" + _LETTER.get(found[3], found[3])
        return f"{'ud-' if found[1] else ''}{found[2]}_k{letter or ''}"
    if found := _IQUANT.fullmatch(text):
        return f"{'ud-' if found[1] else ''}{found[2]}_{found[3]}"
    if found := re.fullmatch(r"(q\d)[_ -]?([01])(?:_\d_\d)?", text):
        return f"{found[1]}_{found[2]}"
    if found := re.fullmatch(r"q(\d)f(?:16|32)(?:_\w+)?", text):
        return "f16" if found[1] == "0" else f"{found[1]}-bit"
    found = re.match(r"((?:ud-)?i?q\d_k_[sml]|q\d_[01]|b?f16|fp16)[ -](?:b?f|fp)?\(?\w*\)?$", text)
    return found and found[1]


def _scheme(text: str) -> str | None:
    name = next((name for word, name in _SCHEMES.items() if word in text), None)
    if name is None or re.search(r"i?q\d_", text):
        return None
    if name not in ("mlx", "gptq", "awq", "autoround", "exl2", "exl3"):
        return name
    if re.search(r"b?f(?:p|loat)?16", text):
        return "bf16" if "bf" in text else "f16"
    group, bits = _GROUP.search(text), _BITS.search(text)
    rest = _GROUP.sub("", _BITS.sub("", _WORD.sub("", text)))
    if re.search(r"[a-z0-9]", rest):
        return None
    width = f" {bits[1] or bits[2] or bits[3]}bit" if bits else ""
    return name + width + (f" g{group[1] or group[2]}" if group else "")


def _bits_only(text: str) -> str | None:
    found = re.fullmatch(r"(?:int|w)?[ -]?(\d+(?:\.\d+)?)[ -]?bits?(?: (?:int|g\d+).*)?", text)
    found = found or re.fullmatch(r"(\d)-bit \(?(?:group|g)[ \d]*\)?", text)
    if found is None:
        found = re.fullmatch(r"(int[48])[ _-]*(?:g\d+)?", text)
        return found and found[1]
    spelling = f"{found[1]}-bit"
    return _PLAIN.get(spelling, spelling)
