"""What the tests of the engine share."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def forget_compiled():
    """Drop what a file compiled: gigabytes by the end, which slow down all that follows."""
    yield
    jax.clear_caches()
