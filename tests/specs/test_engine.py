"""Engines as people spell them, the backend that works, and the age of a build."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import data
from workbench.errors import UnknownNameError, WorkbenchError
from workbench.specs import engine


@pytest.mark.parametrize(
    ("spelling", "family"),
    {
        "llama.cpp-cuda": "llama.cpp", "llama-server": "llama.cpp", "llama-cpp-python": "llama.cpp",
        "KoboldCpp 1.98": "llama.cpp", "text-generation-webui": "llama.cpp", "Jan": "llama.cpp",
        "ramalama": "llama.cpp", "GPT4All": "llama.cpp", "ipex-llm llama.cpp": "llama.cpp",
        "ik_llama.cpp-cpu": "ik_llama.cpp", "llamafile-metal": "llamafile",
        "LM Studio 0.3.31": "lm-studio", "lm-studio (llama.cpp)": "lm-studio",
        "LM Studio MLX": "mlx", "lm-studio (mlx)": "mlx", "mlx_lm": "mlx", "mlx-vlm": "mlx",
        "vllm-mlx": "mlx", "rapid-mlx": "mlx", "tabbyAPI": "exllama", "exl3": "exllama",
        "exllamav2": "exllama", "text-generation-webui (exllamav2)": "exllama",
        "vLLM 0.11": "vllm", "TensorRT-LLM": "other", "sglang": "other", "ipex-llm": "other",
        "onnxruntime-genai (DirectML)": "other", "executorch": "other", "openvino-genai": "openvino",
    }.items(),
)  # fmt: skip
def test_family(spelling, family):
    assert engine.family(spelling) == family


@pytest.mark.parametrize(
    ("spelling", "device_class", "backend"),
    [
        ("llama.cpp", "nvidia-gpu", "cuda"),
        ("llama.cpp-metal", "apple-uma", "metal"),
        ("llama.cpp HIP", "amd-gpu", "rocm"),
        ("llama.cpp", "amd-gpu", "vulkan"),
        ("koboldcpp-rocm", "amd-apu", "rocm"),
        ("llama.cpp (oneAPI)", "intel", "sycl"),
        ("ipex-llm llama.cpp", "intel", "sycl"),
        ("LM Studio (ROCm)", "amd-apu", "rocm"),
        ("llama.cpp-vulkan/cuda", "nvidia-gpu", "vulkan"),
        ("llama.cpp-hexagon (HTP)", "npu", "hexagon"),
        ("llama.cpp-vulkan", "cpu", "cpu"),
        ("ollama", "apple-uma", "metal"),
        ("ollama-mlx", "apple-uma", "mlx"),
        ("lm-studio (mlx)", "apple-uma", "mlx"),
        ("exllamav3", "nvidia-gpu", "exllama"),
    ],
)
def test_backend(spelling, device_class, backend):
    assert engine.backend(spelling, device_class) == backend


def test_cpu_engines():
    assert all(map(engine.on_cpu, ("llama.cpp-cpu", "llama.cpp (CPU)", "llama.cpp OpenBLAS")))
    for other in ("llama.cpp", "llama.cpp-cublas", "llama.cpp hipBLAS", "ik_llama.cpp-cuda+cpu"):
        assert not engine.on_cpu(other)


@pytest.mark.parametrize(
    ("name", "build", "era"),
    [
        # ggml-org/llama.cpp: b1500 is of November 2023, b4400 of January 2025
        ("llama.cpp", "b1600", "2023"),
        ("llama.cpp", "b4399", "2024"),
        ("llama.cpp", "version: 6123 (79c1160)", "2025"),
        ("llama.cpp", "b9010 d05fe1d7d", "2026"),
        ("llama.cpp", "081fe431 (3441)", "2024"),
        ("llama.cpp", "8e672ef", "2023"),
        ("llama.cpp", "build: 8e672ef (1500)", "2023"),
        ("LM Studio", "runtime b6123", "2025"),
        ("ik_llama.cpp", "3441 of its own", "2026"),
        ("llama.cpp", "62061f9 (1)", "2026"),
        ("llama.cpp", "2025-08-12", "2025"),
        ("llama.cpp", "Aug 2025", "2025"),
        ("llama.cpp", "0123abcd", "2026"),
        ("openvino", "057031f1 (2024.5)", "2024"),
        ("llamafile", "llamafile 0.9.1", "2024"),
        ("llamafile", "", "2024"),
        ("ollama", "0.1.32", "2024"),
        ("ollama", "ollama version is 0.3.14", "2024"),
        ("ollama", "0.6.2", "2025"),
        ("ollama", "v0.9.1", "2025"),
        ("ollama", "0.32.1", "2026"),
        ("LM Studio", "0.3.2", "2024"),
        ("lm-studio (llama.cpp)", "LM Studio 0.3.31", "2025"),
        ("mlx-lm", "mlx 0.29.2.dev, mlx-lm 0.28.2", "2025"),
        ("rapid-mlx", "v0.6.83", "2026"),
        ("llama.cpp", "", "2026"),
    ],
)
def test_era(name, build, era):
    assert engine.era(name, build) == era


def test_year():
    assert engine.year("Oct-Nov 2023, single batch") == "2023"
    assert engine.year("some/path/2026-08-21-*.md, first made in Jan 2024") == "2026"
    assert engine.year("Qwen3-4B-Instruct-2507; 2024 cores") == ""


def test_a_typo_is_an_error_with_the_right_name():
    with pytest.raises(UnknownNameError) as caught:
        engine.family("olama")
    assert caught.value.suggestions[0] == "ollama"


def test_every_measured_engine_is_known_and_runs_where_it_was_measured():
    for row in data.rows("measurements.csv"):
        assert engine.family(row["engine"]) in engine.families()
        assert engine.backend(row["engine"], row["device_class"])


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_an_engine_or_an_error(name, build):
    assert engine.era("llama.cpp", build) in engine.ERAS
    engine.year(build)
    with contextlib.suppress(WorkbenchError):
        assert engine.family(name) in engine.families()
