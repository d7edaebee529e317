"""Race our matmul against llama.cpp on one random Llama-shaped file a format, interleaved.

    python tests/bench/bench_matmul.py [FORMAT …] [--json]

Ours is every matrix of the file in one jitted step, without attention and norms, which at this
length take little. GB/s are bytes of weights a second; `stream` is the sum of an array of the same
size, the reading speed of the machine at that moment. Other load on the machine disturbs all three:
take the ratio of the best of each.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import gguf
import jax
import jax.numpy as jnp
import numpy as np

from workbench.engine.codecs import FORMATS, encode
from workbench.engine.matmul import COMPILER_OPTIONS, matmul, pack

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 4, 2048, 8192, 32, 8, 512
KV = HIDDEN // HEADS * KV_HEADS
MATRICES = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (KV, HIDDEN),
    "attn_v": (KV, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FFN, HIDDEN),
    "ffn_up": (FFN, HIDDEN),
    "ffn_down": (HIDDEN, FFN),
}
ROUNDS, PROMPT, GENERATE = 5, 128, 24


def write_file(path: Path, name: str) -> dict[str, np.ndarray]:
    """Write a model of random weights in format `name`; return its matrices' bytes (out, bytes)."""
    kind, rng = gguf.GGMLQuantizationType[name], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer)
    tensors = {}
    for layer in range(LAYERS):
        for part, shape in MATRICES.items():
            # one encoded row repeated: the speed does not depend on the values
            row = rng.standard_normal((1, shape[1])).astype(np.float32) / shape[1] ** 0.5
            tensors[f"blk.{layer}.{part}.weight"] = np.repeat(
                np.asarray(encode(name, row)), shape[0], 0
            )
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(HIDDEN, np.float32))
    for tensor, raw in tensors.items():
        writer.add_tensor(tensor, raw, raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    writer.add_tensor("token_embd.weight", rng.standard_normal((VOCAB, HIDDEN)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def _describe(writer: gguf.GGUFWriter) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"w{i}" for i in range(VOCAB - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259))


def llama_cpp(path: Path):
    """Return a function that runs llama.cpp with two threads: tokens/s of prefill and decode."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup = 512, 1, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    server = xllamacpp.Server(params)

    def run() -> tuple[float, float]:
        prompt = np.random.default_rng().integers(260, VOCAB, PROMPT).tolist()
        options = {"n_predict": GENERATE, "ignore_eos": True, "cache_prompt": False}
        timings = server.handle_completions({"prompt": prompt, **options})["timings"]
        return timings["prompt_per_second"], timings["predicted_per_second"]

    return run


def ours(name: str, tensors: dict[str, np.ndarray]):
    """Return a function that runs every matrix: tokens/s of prefill and decode."""
    packed = [pack(name, raw, MATRICES[tensor.split(".")[2]]) for tensor, raw in tensors.items()]
    step = jax.jit(_all_matrices, compiler_options=COMPILER_OPTIONS)
    inputs = {
        n: {size: jnp.ones((n, size), jnp.float32) for size in (HIDDEN, FFN)} for n in (1, PROMPT)
    }

    def seconds(tokens: int, runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            jax.block_until_ready(step(packed, inputs[tokens]))
        return (time.perf_counter() - start) / runs

    for tokens in inputs:
        seconds(tokens, 1)
    return lambda: (PROMPT / seconds(PROMPT, 1), 1 / seconds(1, GENERATE // 2))


def _all_matrices(packed, inputs):
    return [matmul(weights, inputs[weights.shape[1]]).sum() for weights in packed]


def stream(size: int):
    """Return a function that reads `size` bytes: B/s."""
    array = jnp.ones(size // 4, jnp.float32)
    total = jax.jit(jnp.sum)
    total(array).block_until_ready()

    def run() -> float:
        start = time.perf_counter()
        total(array).block_until_ready()
        return size / (time.perf_counter() - start)

    return run


def race(name: str) -> dict[str, float]:
    """Return the best of ROUNDS of each, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.gguf"
        tensors = write_file(path, name)
        size = sum(raw.nbytes for raw in tensors.values())
        runners = ours(name, tensors), llama_cpp(path), stream(size)
        rounds = [[run() for run in runners] for _ in range(ROUNDS)]
    (prefill, decode), (peer_prefill, peer_decode) = (
        np.max([r[i] for r in rounds], axis=0) for i in (0, 1)
    )
    return {
        "decode_GB_s": decode * size / 1e9,
        "llama_cpp_decode_GB_s": peer_decode * size / 1e9,
        "stream_GB_s": max(r[2] for r in rounds) / 1e9,
        "decode_ratio": decode / peer_decode,
        "prefill_tok_s": prefill,
        "llama_cpp_prefill_tok_s": peer_prefill,
        "prefill_ratio": prefill / peer_prefill,
        "decode_ratio_median": float(np.median([r[0][1] / r[1][1] for r in rounds])),
        "prefill_ratio_median": float(np.median([r[0][0] / r[1][0] for r in rounds])),
    }


if __name__ == "__main__":
    chosen = [arg for arg in sys.argv[1:] if arg in FORMATS] or ["Q4_0", "Q8_0", "Q4_K", "F16"]
    found = {name: race(name) for name in chosen}
    if "--json" in sys.argv:
        print(json.dumps(found))
    for name, row in found.items() if "--json" not in sys.argv else ():
        print(name, "  ".join(f"{key} {value:.3g}" for key, value in row.items()))
