"""The same weights without quantisation: what a quantised file says, in float32."""

from pathlib import Path

import gguf


def unquantised(source: Path, target: Path) -> Path:
    """Write `source` with every tensor dequantised by the `gguf` library, and return `target`.

    llama.cpp rounds activations to 8 bits for quantised weights, and to 16 for F16; on float32
    weights it rounds nothing, and is an oracle for arithmetic that is more exact than its own.
    """
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
