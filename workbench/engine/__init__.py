"""Pieces that really run, JAX-jitted."""
