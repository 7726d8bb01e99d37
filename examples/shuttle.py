"""Which of seven states a shuttle is in: python -m examples.shuttle, with VITS_DATA set to the folder of data sets."""

from examples import comparison

import vits

NOISE_PRECISION = 100.0
PRIOR_PRECISION = 1.0


def main() -> None:
    """Cumulative regret on the same rounds: the commonest class, ours, and bayesianbandits."""
    given = comparison.options(__doc__)
    world = vits.environments.shuttle(encoding="row")
    comparison.header(world, given)
    commonest = comparison.always(world, given, 0)
    comparison.line("always the commonest class", commonest.cumulative_regret[:, -1], commonest.seconds)
    same = {"inverse_temperature": NOISE_PRECISION, "prior_precision": PRIOR_PRECISION}
    comparison.play("lin_ts", world, given, "linear", **same)
    for name in ("vits_ng", "vits_ii", "laplace_ts"):
        comparison.play(name, world, given, "logistic", inverse_temperature=1.0, prior_precision=PRIOR_PRECISION)
    for model in ("linear", "logistic"):
        settings = {"prior_precision": PRIOR_PRECISION, "noise_precision": NOISE_PRECISION}
        comparison.play_peer(world, given, model=model, **settings)


if __name__ == "__main__":
    main()
