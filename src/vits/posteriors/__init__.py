"""Approximate posteriors, one file per family."""
