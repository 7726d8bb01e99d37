"""Our verdicts and those of AdaStop (Mathieu et al., TMLR 2024) on the same regrets, as an outside check.

AdaStop compares unpaired means by permutation tests in a fixed number of blocks. It has no margin: its "equal" means
that no difference was found. So its verdict and ours must never point in opposite directions. And if AdaStop finds a
difference without pairs, we must find it too, or find that it is within the margin.

AdaStop is not a dependency. Install it in a separate virtual environment and run this file there:

    python -m venv .venv-adastop && .venv-adastop/bin/pip install adastop scipy jaxtyping
    PYTHONPATH=src .venv-adastop/bin/python trust/outside_verdicts.py
"""

from pathlib import Path

import numpy as np
from adastop import MultipleAgentsComparator  # type: ignore[import-not-found]

from vits.lab import compare

BLOCK, BLOCKS, PERMUTATIONS = 30, 33, 5000  # AdaStop takes no larger blocks
PAIRS = (("vits_ii", "lin_ts"), ("lmc10", "lin_ts"), ("lmc10", "vits_ii"), ("lin_ts", "1.3 lin_ts"))


def adastop(first: np.ndarray, second: np.ndarray) -> tuple[str, int]:
    """Its decision on the mean of the first against that of the second, and the seeds it took."""
    comparator = MultipleAgentsComparator(n=BLOCK, K=BLOCKS, B=PERMUTATIONS, alpha=compare.LEVEL, seed=0)
    for block in range(1, BLOCKS + 1):
        comparator.partial_compare({"a": first[: block * BLOCK], "b": second[: block * BLOCK]}, verbose=False)
        if comparator.is_finished:
            break
    return next(iter(comparator.decisions.values())), block * BLOCK


def main() -> None:
    """Print both verdicts on every pair; an opposite one ends with an error."""
    regrets = dict(np.load(Path(__file__).parents[1] / "tests" / "fixtures" / "regrets.npz"))
    regrets = {name: values.astype(float) for name, values in regrets.items()}
    # Shuffled and a third larger: a true difference between unpaired values.
    regrets["1.3 lin_ts"] = 1.3 * np.random.default_rng(0).permutation(regrets["lin_ts"])
    for first, second in PAIRS:
        less, more = (
            compare.decide(compare.less, regrets[a], regrets[b], alpha=compare.LEVEL)
            for a, b in ((first, second), (second, first))
        )
        ours = "smaller" if less.verdict == "holds" else "larger" if more.verdict == "holds" else less.verdict
        theirs, seeds = adastop(regrets[first], regrets[second])
        print(f"{first} - {second}: {less}; here {ours}, AdaStop {theirs} after {seeds} seeds")
        assert {ours, theirs} != {"smaller", "larger"}


if __name__ == "__main__":
    main()
