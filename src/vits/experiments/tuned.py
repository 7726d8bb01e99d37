"""The settings that `vits tune` found best, by experiment, world and contender.

Found by `vits tune NAME --preset paper --tuning-seeds 20`: every setting of the grids in `vits.tuning` played the seeds
10,000 to 10,004 for 500 rounds, the best sixth of each grid the seeds 10,000 to 10,019 for 1000, and the one with the
least mean regret was chosen, settings with a failed seed apart; with logistic rewards in half as many rounds
(`--horizon 500`). No preset reports those seeds.
"""

from typing import Any

LINEAR: dict[float, dict[str, dict[str, Any]]] = {
    0.1: {
        "vits_i": {
            "inverse_temperature": 10.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vits_ii": {
            "inverse_temperature": 10.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vits_ii_hf": {
            "inverse_temperature": 10.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vits_ng": {"inverse_temperature": 100.0, "prior_precision": 0.1},
        "lin_ts": {"inverse_temperature": 10.0, "prior_precision": 10.0},
        "lmc_ts(10)": {"inverse_temperature": 3.0, "prior_precision": 10.0},
        "lmc_ts(50)": {
            "inverse_temperature": 10.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vts": {"prior_precision": 10.0, "prior_scale": 0.1},
        "lin_ucb": {"prior_precision": 10.0, "width": 1.0},
    },
    1.0: {
        "vits_i": {
            "inverse_temperature": 100.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vits_ii": {
            "inverse_temperature": 100.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vits_ii_hf": {
            "inverse_temperature": 100.0,
            "prior_precision": 10.0,
            "step_size": 0.01,
            "step_rule": "per_observation",
        },
        "vits_ng": {"inverse_temperature": 500.0, "prior_precision": 10.0},
        "lin_ts": {"inverse_temperature": 500.0, "prior_precision": 10.0},
        "lmc_ts(10)": {"inverse_temperature": 1000.0, "prior_precision": 10.0},
        "lmc_ts(50)": {"inverse_temperature": 100.0, "prior_precision": 10.0},
        "vts": {"prior_precision": 10.0, "prior_scale": 0.1},
        "lin_ucb": {"prior_precision": 1.0, "width": 1.0},
    },
}

FIXED_LINEAR: dict[str, dict[str, Any]] = {
    "vits_i": {"inverse_temperature": 3.0, "prior_precision": 1.0, "step_size": 0.1, "step_rule": "per_observation"},
    "vits_ii": {"inverse_temperature": 3.0, "prior_precision": 1.0, "step_size": 0.1, "step_rule": "per_observation"},
    "vits_ii_hf": {
        "inverse_temperature": 3.0,
        "prior_precision": 1.0,
        "step_size": 0.1,
        "step_rule": "per_observation",
    },
    "vits_ng": {"inverse_temperature": 10.0, "prior_precision": 1.0},
    "lin_ts": {"inverse_temperature": 10.0, "prior_precision": 0.1},
    "lmc_ts": {"inverse_temperature": 3.0, "prior_precision": 1.0},
    "ensemble_ts": {"inverse_temperature": 3.0, "prior_precision": 0.1},
    "vts": {"prior_precision": 10.0, "prior_scale": 0.1},
    "lin_ucb": {"prior_precision": 1.0, "width": 1.0},
}

FIXED_LOGISTIC: dict[str, dict[str, Any]] = {
    "vits_i": {"inverse_temperature": 3.0, "prior_precision": 1.0},
    "vits_ii": {"inverse_temperature": 3.0, "prior_precision": 1.0},
    "vits_ii_hf": {"inverse_temperature": 3.0, "prior_precision": 1.0},
    "vits_ng": {"inverse_temperature": 10.0, "prior_precision": 10.0},
    "laplace_ts": {"inverse_temperature": 10.0, "prior_precision": 10.0},
    "lmc_ts": {"inverse_temperature": 10.0, "prior_precision": 1.0},
    "ensemble_ts": {"inverse_temperature": 3.0, "prior_precision": 0.1},
    "lin_ts": {"inverse_temperature": 10.0, "prior_precision": 0.1},
    "vts": {"prior_precision": 10.0, "prior_scale": 0.1},
}
