"""Calibration by simulation: the rank of the truth among draws from a posterior is uniform."""

import pytest
from trust import sbc

LINEAR = list(sbc.CONVERGED)
LOGISTIC = [name for name in sbc.CONVERGED if name != "lin_ts"]


@pytest.mark.parametrize("name", ["lin_ts", "vits_ii"])
def test_ranks_are_uniform_on_the_linear_model(name):
    found = sbc.run(name, "linear", 300)
    assert found.rejected == 0
    assert found.p_value > 1e-3, found
    # Standard errors over 300 simulations: 0.06 and 0.04.
    assert abs(found.bias) < 0.2, found
    assert 0.87 < found.width < 1.13, found


@pytest.mark.heavy
@pytest.mark.parametrize("name", LINEAR)
def test_ranks_are_uniform_on_the_linear_model_over_a_thousand_simulations(name):
    found = sbc.run(name, "linear", 1000)
    assert found.rejected == 0
    assert found.p_value > 1e-3, found
    assert abs(found.bias) < 0.1, found
    assert 0.93 < found.width < 1.07, found


@pytest.mark.heavy
@pytest.mark.parametrize("name", LOGISTIC)
def test_a_gaussian_is_nearly_calibrated_on_the_logistic_model(name):
    # The posterior is no Gaussian: what is gated is that it gets no worse than it was when measured.
    found = sbc.run(name, "logistic", 1000)
    assert found.rejected == 0
    assert abs(found.bias) < 0.1, found
    assert 0.93 < found.width < 1.12, found


def test_a_posterior_that_is_too_narrow_is_found_out(monkeypatch):
    # An inverse temperature that the data do not have: deviations are half of what they should be.
    monkeypatch.setitem(sbc.CONVERGED, "lin_ts", {"inverse_temperature": 4.0, "prior_precision": 0.25})
    found = sbc.run("lin_ts", "linear", 300)
    assert found.p_value < 1e-6
    assert found.width > 1.5


@pytest.mark.heavy
@pytest.mark.parametrize("algorithm", ["vits_ng", "vits_ii", "vits_ii_hf"])
def test_low_rank_covariances_are_calibrated_at_full_rank_and_too_narrow_below(algorithm):
    full, one, none = (sbc.run(f"{algorithm}, {form}", "linear", 1000) for form in sbc.FAMILIES)
    assert full.p_value > 1e-3
    assert 0.93 < full.width < 1.07
    assert full.width - 0.05 < one.width < none.width + 0.05 < 1.3
