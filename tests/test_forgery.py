"""Forged files: refused in one sentence, or agents that work."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from trust import forgery, mutations

import vits
from vits.agent import container, invariants


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of an agent with three arms, each with a posterior of its own, and of one without names."""
    path = tmp_path_factory.mktemp("saved") / "agent"
    names = ("laplace_ts", "lmc_ts", "last_layer_ts", "uniform", "vts", "fg_ts")
    return {name: forgery._saved(forgery.SAMPLES[name], path) for name in names}


@pytest.fixture
def refused(saved, tmp_path):
    """A function that forges the header and the arrays of a sample and returns the message with which it is refused."""

    def attempt(name, change):
        members = mutations.unpacked(saved[name])
        header = json.loads(mutations.array_of(members.pop("header")).tobytes())
        arrays = {key: np.array(mutations.array_of(member)) for key, member in members.items()}
        change(header, arrays)
        content = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)} | arrays
        forged = mutations.sealed(mutations.packed({key: mutations.npy(array) for key, array in content.items()}))
        (tmp_path / "forged").write_bytes(forged)
        with pytest.raises(ValueError, match="forged' is damaged: ") as error:
            vits.Agent.load(tmp_path / "forged")
        assert "\n" not in str(error.value)
        return str(error.value).partition("is damaged: ")[2]

    return attempt


HEADERS = {
    "a negative count": (
        lambda h: h["counts"].update(observations=-1),
        "the count observations must be a whole number",
    ),
    "more learned than updated": (lambda h: h["counts"].update(updates=0), "must fit each other"),
    "another number of rows": (lambda h: h.update(rows=h["rows"] + 1), "stored observations must be the number of"),
    "two arms in one slot": (lambda h: h["arms"][0].__setitem__(1, h["arms"][1][1]), "two arms share one posterior"),
    "two arms of one name": (lambda h: h["arms"][0].__setitem__(0, h["arms"][1][0]), "the same name or number"),
    "a slot that is not there": (
        lambda h: h["arms"][0].__setitem__(1, 8),
        "posterior of an arm must be .* from 0 to 7",
    ),
    "an arm without a name": (lambda h: h["arms"][0].__setitem__(0, [1]), "the name of an arm must be text"),
    "pending without an arm": (lambda h: h["pending"][0].__setitem__(1, []), "must have different arms, at least one"),
    "a foreign id": (lambda h: h["pending"][0].__setitem__(0, "x-1"), "an id that no agent gave it"),
    "an unknown field": (lambda h: h.update(x=1), "the header must have the fields algorithm"),
    "an unknown algorithm": (lambda h: h.update(algorithm="x"), "the algorithm must be one of"),
    "an unknown setting": (lambda h: h["hyperparameters"].update(x={"value": 1}), "is not a hyperparameter of"),
    "a setting of the wrong kind": (
        lambda h: h["hyperparameters"].update(inverse_temperature={"value": "1"}),
        "inverse_temperature has a value of the wrong kind",
    ),
    "a setting that cannot be": (
        lambda h: h["hyperparameters"].update(inverse_temperature={"value": -1.0}),
        "its settings do not make an agent of laplace_ts, .*, but is -1.0",
    ),
    "a seed that cannot be": (lambda h: h.update(seed=2**32), "the seed must be a whole number from 0 to 4294967295"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_impossible_headers_are_refused(name, refused):
    change, message = HEADERS[name]
    found = refused("laplace_ts", lambda header, arrays: change(header))
    assert re.search(message, found), found


ARRAYS = {
    "NaN": (lambda a: a["state_0"].fill(np.nan), "mean must be finite"),
    "another type": (lambda a: a.update(state_0=a["state_0"].astype(np.float64)), "is not one that laplace_ts has"),
    "another shape": (lambda a: a.update(state_0=a["state_0"][:4]), "is not one that laplace_ts has"),
    "one array too few": (lambda a: a.pop("state_1"), "is not one that laplace_ts has"),
    "one array too many": (lambda a: a.update(x=np.zeros(3)), "it has 1 arrays that do not belong to an agent"),
    "no deviations": (lambda a: a["state_1"].fill(0.0), "deviations of a posterior must be positive"),
    "a mean beyond its precision": (lambda a: a["state_0"].fill(1e15), "lost in the rounding of its mean"),
    "rewards that are none": (lambda a: a["state_3"].fill(5.0), "must hold possible observations"),
    "pages that are not there": (lambda a: a["state_5"].fill(99), "the pages of a history must exist"),
    "pages of another arm": (lambda a: a["state_7"].fill(0), "must hold the rows of its arms"),
    "a negative count": (lambda a: a["state_4"].fill(-1), "a history must hold between no and all of its rows"),
    "features that are none": (lambda a: a["pending_features"].fill(np.inf), "pending decisions must be finite"),
    "features of one decision": (
        lambda a: a.update(pending_features=a["pending_features"][:1]),
        "there must be features for each pending decision",
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_impossible_arrays_are_refused(name, refused):
    change, message = ARRAYS[name]
    found = refused("laplace_ts", lambda header, arrays: change(arrays))
    assert message in found


def test_impossible_networks_are_refused(refused):
    def changed(position, value):
        return refused("last_layer_ts", lambda header, arrays: arrays[f"state_{position}"].fill(value))

    squares = "the steps and the squared gradients of an optimiser must not be negative"
    assert changed(2, -1) == changed(4, -1.0) == squares  # the state: theta, roots, Adam's count, mu, nu, history, Q
    assert changed(8, -1.0) == "the diagonal of a precision must be positive"

    def wide(header, arrays):
        header["model"] |= {"hidden": [10**7], "num_params": 4 * 10**7 + 1}

    before = forgery._peak()
    assert refused("last_layer_ts", wide) == "it is too small to hold the 40,000,001 parameters of its network"
    assert forgery._peak() - before < 20


def test_impossible_sums_over_folded_observations_are_refused(refused):
    def changed(position, value):
        return refused("vts", lambda header, arrays: arrays[f"state_{position}"].fill(value))

    # The state: the factors and prior means, history, its evicted row, and tr R, X'RX, X'Re, e'Re.
    negative = "sums of responsibilities and of squares must not be negative"
    assert changed(11, -1.0) == changed(12, -1.0) == changed(14, -1.0) == negative
    assert changed(11, 1e6) == "the responsibilities of an observation must add up to 1"

    def skew(header, arrays):
        arrays["state_12"][..., 0, 1] = 1e6

    assert refused("vts", skew) == "a precision matrix must be symmetric and positive definite"


def test_rounds_that_are_not_those_of_the_observations_are_refused(refused):
    def fewer(header, arrays):
        counts = [array for name, array in arrays.items() if name.startswith("state") and array.dtype.kind == "i"]
        assert [int(count) for count in counts] == [int(counts[0])] * 2
        counts[0][...] -= 1

    assert refused("fg_ts", fewer) == "the rounds of a state must be those of its observations"


def test_a_file_cannot_ask_for_more_memory_than_it_pays_for(refused):
    def many_parameters(header, arrays):
        header["model"] |= {"dim": 8000, "num_params": 8000}

    before = forgery._peak()
    assert "is not one that lmc_ts has" in refused("lmc_ts", many_parameters)
    assert "is not one that laplace_ts has" in refused("laplace_ts", lambda h, _: h.update(capacity=2**25))
    assert "observations with 2 features needs" in refused("laplace_ts", lambda h, _: h.update(capacity=2**39))
    assert "is not one that laplace_ts has" in refused("laplace_ts", lambda h, _: h.update(slots=2**20))
    assert "the number of posteriors must be" in refused("uniform", lambda h, _: h.update(slots=2**39))
    window = {"value": 10**9}
    assert "window must be a whole number" in refused("lmc_ts", lambda h, _: h["hyperparameters"].update(window=window))
    assert forgery._peak() - before < 100


def test_entries_that_are_larger_than_the_file_are_not_read(saved, tmp_path):
    members = mutations.unpacked(saved["lmc_ts"])
    members["state_0"] = mutations.npy(np.zeros(2, np.float32), shape=(10**9,))
    (tmp_path / "forged").write_bytes(mutations.sealed(mutations.packed(members)))
    with pytest.raises(ValueError, match=r"entry 'state_0' has 8 bytes, which do not make an array of shape"):
        vits.Agent.load(tmp_path / "forged")
    bomb = mutations.packed(members | {"state_0": bytes(10**6)}, compression=8)
    (tmp_path / "forged").write_bytes(container.first_line(3, bomb) + bomb)
    with pytest.raises(ValueError, match="an entry is compressed or encrypted"):
        vits.Agent.load(tmp_path / "forged")


def test_a_few_hundred_forged_files():
    found = forgery.run(440, seed=1, samples=("vits_ii", "laplace_ts", "lmc_ts", "fg_ts"))
    assert found.failures == []
    assert found.memory_growth < forgery.MEMORY
    counts = sum(found.counts.values(), Counter())
    assert counts["refused"] > 300
    assert counts["works"] > 10


def test_the_campaign_finds_a_loader_that_does_not_look(monkeypatch):
    monkeypatch.setattr(invariants, "check", lambda *_, **__: None)
    found = forgery.run(110, seed=2, samples=("laplace_ts", "lmc_ts"))
    assert found.failures


@pytest.mark.heavy
def test_eleven_thousand_forged_files():
    found = forgery.run(11_000)
    assert found.failures == []
    assert found.passed
