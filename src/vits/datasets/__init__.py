"""Readers of data sets. The data are not part of this package: they are found on disk or downloaded, and checked."""
