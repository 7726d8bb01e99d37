"""Which of seven states a shuttle is in: python -m examples.shuttle, with VITS_DATA set to the folder of data sets."""

from typing import Any

from examples import comparison

import vits

NOISE_PRECISION = 100.0
PRIOR_PRECISION = 1.0


def main() -> None:
    """Cumulative regret on the same rounds: the commonest class, ours, and bayesianbandits."""
    given = comparison.options(__doc__, "lin_ts", "vits_ng", "vits_ii", "laplace_ts")
    world = vits.environments.shuttle(encoding="row")
    comparison.header(world, given)
    commonest = comparison.always(world, given, 0)
    comparison.line("always the commonest class", commonest.cumulative_regret[:, -1], commonest.seconds)
    noise, prior = {"inverse_temperature": NOISE_PRECISION}, {"prior_precision": PRIOR_PRECISION}
    ours: dict[str, Any] = {"linear": {}, "logistic": {}}
    for name in given.algorithms:
        model, settings = ("linear", prior | noise) if name == "lin_ts" else ("logistic", prior)
        ours[model][name] = comparison.play(name, world, given, model, **settings)
    theirs = prior | {"noise_precision": NOISE_PRECISION}
    comparison.play_peer(ours["linear"], world, given, model="linear", **theirs)
    for approximation in ("Laplace", "RVGA"):
        comparison.play_peer(ours["logistic"], world, given, model="logistic", approximation=approximation, **theirs)


if __name__ == "__main__":
    main()
