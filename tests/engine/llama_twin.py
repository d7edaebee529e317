"""The same weights without quantisation: what a quantised file says, in float32."""

from pathlib import Path

import gguf
import numpy as np

from workbench.specs.gguf_header import GgufHeader, read_header


def dequantised(header: GgufHeader, name: str, rows: int | None = None) -> np.ndarray:
    """Return the first `rows` rows of a tensor as the `gguf` library dequantises them.

    Its reader takes many seconds to step through a large vocabulary, so the place is ours.
    """
    i = header.names.index(name)
    inner, *outer = header.shapes[i]
    start = header.data_offset + int(header.offsets[i])
    raw = np.memmap(header.path, np.uint8, "r", start, (int(header.nbytes[i]),))
    lines = raw.reshape(*reversed(outer), -1)[:rows]
    kind = gguf.GGMLQuantizationType[header.types[i]]
    values = lines.view(np.float32) if kind.name == "F32" else gguf.dequantize(lines, kind)
    assert values.shape[-1] == inner
    return values


def unquantised(source: Path, target: Path) -> Path:
    """Write `source` with every tensor dequantised by the `gguf` library, and return `target`.

    llama.cpp rounds activations to 8 bits for quantised weights, and to 16 for F16; on float32
    weights it rounds nothing, and is an oracle for arithmetic that is more exact than its own.
    The twin reads ids, not text: it has no vocabulary.
    """
    header = read_header(source)
    arch = header.metadata["general.architecture"]
    writer = gguf.GGUFWriter(target, arch)
    for key, value in header.metadata.items():
        if key.startswith(f"{arch}.") and key != f"{arch}.vocab_size":
            kind = gguf.GGUFValueType.UINT32 if type(value) is int else None
            writer.add_key_value(key, value, kind or gguf.GGUFValueType.get_type(value))
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(
        dict(zip(header.names, header.shapes, strict=True))["token_embd.weight"][1]
    )
    for name in header.names:
        writer.add_tensor(name, dequantised(header, name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
