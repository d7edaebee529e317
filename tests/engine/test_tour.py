"""What the engine's tour shows: bytes and losses of a file, routing of a text."""

import gguf
import numpy as np
import pytest

from workbench.engine.decoder_trace import routing_trace
from workbench.engine.loading import load
from workbench.engine.loading_tiny import tiny
from workbench.errors import FileError, SpecError, UnknownNameError
from workbench.figures import engine_tour as figures
from workbench.panels.engine_tour import LossPanel
from workbench.study import engine_tour as tour


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tour") / "moe.gguf", "qwen3moe", quant="Q8_0", layers=2)


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


def test_panel_shows_that_the_stored_format_loses_nothing(path):
    panel = LossPanel(path)
    panel.set(piece="attn_q.weight", layer=1)
    assert not panel.error and panel.data.attrs["tensor"] == "blk.1.attn_q.weight"
    assert np.isinf(panel.data.sqnr.sel(quant="Q8_0"))
    assert "losses" in panel.to_code()
    panel.close()


def test_routing_is_of_the_text_so_far(path):
    """Causal: what comes later does not change where a token went."""
    decoder, ids = load(path), list(range(5, 21))
    whole, part = routing_trace(decoder, ids), routing_trace(decoder, ids[:8])
    np.testing.assert_array_equal(whole.expert[:8], part.expert)
    fig = figures.routing(whole, layer=1)
    np.testing.assert_allclose(np.asarray(fig.data[0].z).sum(0), 1, rtol=1e-5)
    with pytest.raises(SpecError, match="0 tokens"):
        routing_trace(decoder, [])
