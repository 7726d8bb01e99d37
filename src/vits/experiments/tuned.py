"""The settings that `vits tune` found, by experiment, world and contender."""

LINEAR = {0.1: {"lin_ts": {"inverse_temperature": 100.0}}, 1.0: {"lin_ts": {"inverse_temperature": 100.0}}}
FIXED_LINEAR = {"lin_ts": {"inverse_temperature": 1.0}}
FIXED_LOGISTIC = {"lin_ts": {"inverse_temperature": 1.0}}
