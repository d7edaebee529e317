"""The Bottleneck Workbench: which models run on a machine, how fast, and why."""

import jax

# Prices add nanoseconds to seconds and bytes to terabytes: float32 loses the small terms.
jax.config.update("jax_enable_x64", True)
