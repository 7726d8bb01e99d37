"""Figures, one file for each kind. Every function takes the results of a run and returns the path of its picture."""
