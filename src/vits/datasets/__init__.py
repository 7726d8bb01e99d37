"""Data sets that never are part of this package: found on disk, checked, or fetched from their publisher."""
