"""Campaigns that try to make the library fail: `python -m trust faults`, `soak`, `sbc`."""
