"""llama.cpp as the oracle: its C functions, called in the library that xllamacpp ships.

xllamacpp's own server hands out logits only as text, a token at a time. Structs go in and out by
value with room to spare behind their last field, so that their exact length need not be known.
"""

import ctypes as c
from pathlib import Path

import numpy as np

from workbench.probe.system import threads_allowed

_I32, _PTR = c.c_int32, c.c_void_p


class _Params(c.Structure):
    _fields_ = [("words", c.c_uint32 * 128)]


class _Batch(c.Structure):
    _fields_ = [
        ("n_tokens", _I32),
        ("token", c.POINTER(_I32)),
        ("embd", _PTR),
        ("pos", c.POINTER(_I32)),
        ("n_seq_id", c.POINTER(_I32)),
        ("seq_id", c.POINTER(c.POINTER(_I32))),
        ("logits", c.POINTER(c.c_int8)),
    ]


_LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, _PTR)
_silent = _LOG(lambda level, text, data: None)


def _library() -> c.CDLL:
    import xllamacpp

    lib = c.CDLL(str(Path(xllamacpp.__file__).with_name("xllamacpp.abi3.so")))
    lib.llama_log_set(_silent, None)
    for name in ("llama_model_default_params", "llama_context_default_params"):
        getattr(lib, name).restype = _Params
    for name, given in (
        ("llama_model_load_from_file", [c.c_char_p, _Params]),
        ("llama_init_from_model", [_PTR, _Params]),
        ("llama_model_get_vocab", [_PTR]),
        ("llama_get_memory", [_PTR]),
    ):
        getattr(lib, name).restype, getattr(lib, name).argtypes = _PTR, given
    lib.llama_batch_init.restype = _Batch
    lib.llama_decode.argtypes = [_PTR, _Batch]
    lib.llama_get_logits_ith.restype = c.POINTER(c.c_float)
    lib.llama_get_logits_ith.argtypes = [_PTR, _I32]
    lib.llama_memory_clear.argtypes = [_PTR, c.c_bool]
    lib.llama_tokenize.argtypes = [
        _PTR,
        c.c_char_p,
        _I32,
        c.POINTER(_I32),
        _I32,
        c.c_bool,
        c.c_bool,
    ]
    lib.llama_set_n_threads.argtypes = [_PTR, _I32, _I32]
    lib.llama_free.argtypes = lib.llama_model_free.argtypes = [_PTR]
    return lib


class LlamaCpp:
    """A model in llama.cpp with a context of 1024 tokens; f16 cache, as by default."""

    def __init__(self, path: Path, vocab: int):
        self.lib, self.vocab = _library(), vocab
        self.lib.llama_backend_init()
        params = self.lib.llama_model_default_params()
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), params)
        assert self.model, path
        params = self.lib.llama_context_default_params()
        params.words[0], params.words[1] = 1024, 1024  # n_ctx, n_batch
        self.context = self.lib.llama_init_from_model(self.model, params)
        threads = threads_allowed()  # by default it takes four, which wait for each other busily
        self.lib.llama_set_n_threads(self.context, threads, threads)
        self.batch = self.lib.llama_batch_init(1024, 0, 1)

    def close(self) -> None:
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def tokenize(self, text: str) -> list[int]:
        raw, out = text.encode(), (_I32 * 4096)()
        vocab = self.lib.llama_model_get_vocab(self.model)
        count = self.lib.llama_tokenize(vocab, raw, len(raw), out, 4096, True, True)
        return list(out[:count])

    def logits(self, ids: list[int], start: int = 0) -> np.ndarray:
        """Return (tokens, vocab) float32 of tokens that stand from `start` on; 0 forgets the past."""
        if start == 0:
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i] = token, start + i
            self.batch.n_seq_id[i], self.batch.logits[i] = 1, 1
            self.batch.seq_id[i][0] = 0
        assert self.lib.llama_decode(self.context, self.batch) == 0
        rows = (self.lib.llama_get_logits_ith(self.context, i) for i in range(len(ids)))
        return np.stack([np.ctypeslib.as_array(row, (self.vocab,)) for row in rows])

    def greedy(self, ids: list[int], count: int) -> tuple[list[int], list[float]]:
        """Return the likeliest continuation, and by how much each token led the second."""
        row, start, tokens, leads = self.logits(ids)[-1], len(ids), [], []
        for _ in range(count):
            second, first = np.argpartition(row, -2)[-2:]
            tokens.append(int(first))
            leads.append(float(row[first] - row[second]))
            row, start = self.logits([int(first)], start)[-1], start + 1
        return tokens, leads
