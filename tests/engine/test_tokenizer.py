"""Token ids against llama.cpp's, on text that is hard to cut; streams against whole texts."""

import pytest

from tests.engine.llama_cpp import LlamaCpp
from workbench.engine.loading_tiny import tiny
from workbench.engine.tokenizer import check_ids, read_tokenizer
from workbench.errors import FileError, SpecError
from workbench.specs.gguf_header import read_header

TEXTS = (
    "Hello world",
    " leading and trailing ",
    "two  three   spaces\t\ttabs\n\n\nlines\r\n",
    "don't I'M they'll 1234567 3.14",
    "é ü 你好 ไทย \U0001f389\U0001f3fd",
    "if (a<=b) { return x[i]; } // ok",
    "<start_of_turn>user\nhi<end_of_turn>\n",
    "▁ \x00 \x7f",
    "",
)


@pytest.fixture(scope="module")
def gemma(gemma_path):
    return read_tokenizer(read_header(gemma_path))


def test_real_vocabulary_is_llama_cpps(gemma, gemma_path):
    peer = LlamaCpp(gemma_path, 262144)
    theirs = [peer.tokenize(text) for text in TEXTS]
    peer.close()
    assert [gemma.encode(text) for text in TEXTS] == theirs


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt-oss"])
def test_every_kind_of_vocabulary_is_llama_cpps(kind, tmp_path):
    path = tiny(tmp_path / "tiny.gguf", kind, layers=1)
    own, peer = read_tokenizer(read_header(path)), LlamaCpp(path, 512)
    theirs = [peer.tokenize(text) for text in TEXTS if "\x00" not in text]
    peer.close()
    assert [own.encode(text) for text in TEXTS if "\x00" not in text] == theirs


@pytest.mark.parametrize("text", TEXTS[:6])
def test_stream_says_the_whole_text(gemma, text):
    """Characters of several tokens come at once, and never halved."""
    ids = gemma.encode(text, bos=False)
    pieces = list(gemma.stream(ids))
    assert len(pieces) == len(ids) and "".join(pieces) == text


def test_stream_goes_on_behind_a_prompt(gemma):
    before, after = gemma.encode("The sky"), gemma.encode(" is blue", bos=False)
    assert "".join(gemma.stream(after, before)) == " is blue"


def test_half_a_character_is_refused(gemma):
    with pytest.raises(SpecError, match=r"at 1 .*ud800"):
        gemma.encode("a\ud800")


@pytest.mark.parametrize("token", [-1, 512, 1.5, True, "a"])
def test_ids_out_of_range_are_refused(token):
    with pytest.raises(SpecError, match="0 to 511"):
        check_ids([3, token], 512)


def test_an_unknown_splitting_rule_is_named(tmp_path):
    path = tiny(tmp_path / "tiny.gguf", "qwen2", layers=1)
    path.write_bytes(path.read_bytes().replace(b"qwen2\x18", b"qwen9\x18", 1))
    raw = path.read_bytes()
    at = raw.index(b"tokenizer.ggml.pre") + len("tokenizer.ggml.pre") + 4 + 8
    path.write_bytes(raw[:at] + b"qwen9" + raw[at + 5 :])
    with pytest.raises(FileError, match="qwen9.*llama-bpe"):
        read_tokenizer(read_header(path))
