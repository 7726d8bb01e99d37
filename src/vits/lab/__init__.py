"""Experiments: running them, storing their results, drawing and reporting them."""
