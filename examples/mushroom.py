"""Eat a mushroom or leave it: python -m examples.mushroom, with VITS_DATA set to the folder of data sets."""

from examples import comparison

import vits

NOISE_PRECISION = 0.1
PRIOR_PRECISION = 10.0


def main() -> None:
    """Cumulative regret on the same rounds: trivial policies, ours, and bayesianbandits."""
    given = comparison.options(__doc__, "lin_ts", "vits_ii")
    world = vits.environments.mushroom(encoding="row")
    comparison.header(world, given)
    for arm, name in enumerate(("eat every mushroom", "leave every mushroom")):
        trace = comparison.always(world, given, arm)
        comparison.line(name, trace.cumulative_regret[:, -1], trace.seconds)
    same = {"inverse_temperature": NOISE_PRECISION, "prior_precision": PRIOR_PRECISION}
    ours = {name: comparison.play(name, world, given, "linear", **same) for name in given.algorithms}
    settings = {"prior_precision": PRIOR_PRECISION, "noise_precision": NOISE_PRECISION}
    comparison.play_peer(ours, world, given, model="linear", **settings)


if __name__ == "__main__":
    main()
