"""The long runs in small, and proof that they would notice."""

import numpy as np
import pytest
from trust import reference, soak

LIN_TS, WINDOWED, LOGISTIC = range(3)


@pytest.mark.parametrize("which", [LIN_TS, WINDOWED])
def test_five_thousand_rounds_keep_all_promises(which):
    found = soak.run(soak.soaks(0.0)[which])
    assert found.rounds == soak.CHUNK
    assert found.passed, found


@pytest.mark.heavy
def test_twenty_thousand_rounds_of_a_logistic_model_on_all_data_keep_all_promises():
    found = soak.run(soak.soaks(0.2)[LOGISTIC])
    assert found.rounds == 20_000
    assert found.passed, found


def test_a_posterior_of_other_data_is_found_out():
    # The reference forgets one observation in ten: deviations differ by 5 %, five times what is allowed.
    honest = soak.soaks(0.0)[LIN_TS]
    kept = np.arange(soak.CHUNK) % 10 != 0
    forgetful = honest._replace(reference=lambda phi, r: honest.reference(phi[kept], r[kept]))
    found = soak.run(forgetful)
    assert found.distance.deviation > 0.04
    assert not found.passed


@pytest.mark.parametrize(
    "spoiled",
    [
        {"not_finite": 1},
        {"rejected": 1},
        {"inverse_error": 0.2},
        {"memory_growth": 100.0},
        {"distance": reference.Distance(0.02, 0.0)},
        {"distance": reference.Distance(0.0, np.nan)},
    ],
)
def test_one_broken_promise_is_enough_to_fail(spoiled):
    fine = soak.Outcome("a run", 1, 1.0, 0, 0, 0, 0.0, reference.Distance(0.0, 0.0), 0.0)
    assert fine.passed
    assert not fine._replace(**spoiled).passed
