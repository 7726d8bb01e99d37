import dataclasses
import json

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import vits
from vits import files
from vits.lab import results
from vits.lab.experiments import linear
from vits.lab.experiments import run as runs
from vits.lab.experiments.bandit import regret_row, trace_arrays
from vits.lab.experiments.run import Engine, Monitor
from vits.lab.plots import curves, style
from vits.lab.report import views
from vits.lab.report.page import diagnostics
from vits.types import REASONS, Reason, new_info

SMALL = dataclasses.replace(linear.EXPERIMENT, horizon=20, seeds=3, chunk=2).only(["lin_ts", "uniform"])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def test_a_run_is_stored_and_loads_as_it_was(folder):
    done = runs.run(SMALL, folder, preset="quick")
    loaded = results.load(folder)
    assert loaded.summary == done.summary
    for cell, arrays in done.cells.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, loaded.cells[cell][name])


def test_the_summary_has_the_agreed_fields_and_right_numbers(folder):
    done = runs.run(SMALL, folder, preset="quick")
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary) == {"experiment", "preset", "settings", "versions", "rows", "claims", "record"}
    assert [(r["environment"], r["algorithm"]) for r in summary["rows"]] == [
        (zeta, name)
        for zeta in ("zeta=0.1", "zeta=1", "zeta=0.1, tuned", "zeta=1, tuned")
        for name in ("lin_ts", "uniform")
    ]
    for row in summary["rows"]:
        final = done.cells[row["environment"], row["algorithm"]]["regret"].sum(axis=1, dtype=np.float64)
        assert row["regret_mean"] == pytest.approx(final.mean())
        assert row["regret_stderr"] == pytest.approx(final.std(ddof=1) / np.sqrt(3))
        assert row["regret_median"] == pytest.approx(np.median(final))
        assert (row["horizon"], row["seeds"], row["failed_seeds"]) == (20, 3, 0)
        assert row["rounds_per_second"] == pytest.approx(60 / row["seconds"])


def row_of(regret, failed):
    counts = {name: np.zeros(len(failed)) for name in ("rejected", "step_capped", "unstable", "refreshed")}
    arrays = {"regret": np.array(regret), "failed": np.array(failed), "seconds": np.ones(1), **counts}
    return regret_row("e", "a", {}, arrays)


def test_failed_seeds_are_counted_and_not_averaged_in():
    row = row_of([[1.0, 1.0], [100.0, 100.0], [3.0, 3.0]], [False, True, False])
    assert row["failed_seeds"] == 1
    assert row["regret_mean"] == 4.0
    assert row["regret_median"] == 4.0


def test_where_every_seed_failed_there_is_no_number():
    row = row_of([[1.0, 1.0], [1.0, 1.0]], [True, True])
    assert row["failed_seeds"] == 2
    assert row["regret_mean"] is None
    json.dumps(row, allow_nan=False)


class Poisoned(vits.policies.Policy):
    """Rejects its third update and its fifth, for different reasons."""

    def init(self, key):
        return jnp.asarray(0)

    def act(self, key, state, arms):
        return jnp.asarray(0)

    def update(self, key, state, observation):
        reason = jnp.where(state == 2, Reason.FULL, jnp.where(state == 4, Reason.DIVERGED, Reason.FINE))
        return state + 1, new_info(is_finite=jnp.asarray(True), reason=reason.astype(int))


def test_rejected_updates_are_counted_by_reason():
    trace = vits.simulate(0, vits.environments.linear(dim=2, num_arms=3), Poisoned(), 10, seeds=3)
    row = regret_row("e", "a", {}, trace_arrays(trace))
    assert row["rejected_updates"] == 6
    assert row["rejections"] == {REASONS[Reason.FULL]: 3, REASONS[Reason.DIVERGED]: 3}
    page = "".join(diagnostics([row], views.DIAGNOSTICS))
    assert f"{REASONS[Reason.FULL]}: 3; " in page


def test_an_interrupted_run_leaves_no_summary_and_goes_on_to_the_same_numbers(folder, tmp_path):
    whole = runs.run(SMALL, tmp_path / "whole", preset="quick")

    class StopAtTheThird(Monitor):
        cells = 0

        def cell(self, cell):
            self.cells += 1
            if self.cells == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run(SMALL, folder, preset="quick", monitor=StopAtTheThird())
    assert not (folder / "summary.json").exists()
    assert len(list(folder.glob("*.npz"))) == 2  # the two chunks of the first cell
    with pytest.raises(ValueError, match="holds no finished run"):
        results.load(folder)
    resumed = runs.run(SMALL, folder, preset="quick")
    for cell, arrays in whole.cells.items():
        for name in set(arrays) - {"seconds"}:
            assert arrays[name].tobytes() == resumed.cells[cell][name].tobytes()


def test_what_a_run_finds_is_told_apart_from_what_it_computes(folder):
    """The time left follows from the speed, and what is found takes none."""
    total = sum(cell.cost for cell in SMALL.cells())

    class Seen(Monitor):
        def __init__(self):
            self.computed, self.started, self.cells = 0, [], []

        def start(self, total, found):
            self.started.append((total, found))

        def cell(self, cell):
            self.cells.append((*cell.key, cell.chunk))

        def advance(self, cost):
            self.computed += cost

    first, second = Seen(), Seen()
    runs.run(SMALL, folder, preset="quick", monitor=first)
    assert (first.computed, first.started, len(first.cells)) == (total, [(total, 0)], 16)
    (folder / "zeta=1--uniform--0-1.npz").unlink()
    runs.run(SMALL, folder, preset="quick", monitor=second)
    assert (second.computed, second.started) == (2 * 20, [(total, total - 2 * 20)])
    assert second.cells == [("zeta=1", "uniform", "0-1")]


def test_what_was_just_computed_is_not_read_back_and_cells_are_built_once(folder, monkeypatch):
    built = []

    class Counted(type(SMALL)):
        def cells(self):
            built.append(1)
            return super().cells()

    def read(path):
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(files, "load_arrays", read)
    fields = {field.name: getattr(SMALL, field.name) for field in dataclasses.fields(SMALL)}
    runs.run(Counted(**fields), folder, preset="quick")
    assert built == [1]


def test_a_policy_is_built_once_for_all_chunks(folder, monkeypatch):
    made, make = [], vits.algorithms.make
    monkeypatch.setattr(
        vits.algorithms, "make", lambda name, *args, **kwargs: made.append(name) or make(name, *args, **kwargs)
    )
    runs.run(dataclasses.replace(SMALL, worlds=SMALL.worlds[:1]), folder, preset="quick")
    assert made == ["lin_ts", "uniform"]


def test_another_engine_can_compute_the_cells_in_any_order(folder, tmp_path):
    class Backwards(Engine):
        def compute(self, cells, monitor):
            for cell in reversed(cells):
                yield cell, cell.compute(monitor.advance)

    usual, other = runs.run(SMALL, tmp_path / "usual", preset="quick"), None
    other = runs.run(SMALL, folder, preset="quick", engine=Backwards())
    assert list(other.cells) == list(usual.cells)
    for key, arrays in usual.cells.items():
        assert arrays["regret"].tobytes() == other.cells[key]["regret"].tobytes()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "summary.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_settings_of_something_else_are_refused_and_left_alone(folder):
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text('{"editor.fontSize": 12}')
    with pytest.raises(ValueError, match=r"settings.json is not that of a run; choose another folder"):
        runs.run(SMALL, folder, preset="quick")
    assert [file.name for file in folder.iterdir()] == ["settings.json"]


def test_a_folder_with_something_else_is_refused_and_left_alone(folder):
    runs.run(SMALL, folder, preset="quick")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(ValueError, match="whose settings differ in horizon; choose another folder"):
        runs.run(dataclasses.replace(SMALL, horizon=21), folder, preset="quick")
    with pytest.raises(ValueError, match="holds a run of 'linear', not of 'mine'; choose another folder"):
        runs.run(dataclasses.replace(SMALL, name="mine"), folder, preset="quick")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    other = folder.parent / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="not an empty folder"):
        runs.run(SMALL, other, preset="quick")


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="file/run cannot be used: Not a directory; choose another folder"):
        runs.run(SMALL, tmp_path / "file" / "run", preset="quick")


@pytest.mark.parametrize("content", [b"", b"no archive", "cut"])
def test_a_damaged_cell_is_named_and_left_alone(folder, content):
    runs.run(SMALL, folder, preset="quick")
    path = folder / "zeta=1--uniform--2-2.npz"
    path.write_bytes(path.read_bytes()[:-40] if content == "cut" else content)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(ValueError, match=r"zeta=1--uniform--2-2\.npz is damaged: "):
        runs.run(SMALL, folder, preset="quick")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_damaged_settings_are_named(folder, content):
    runs.run(SMALL, folder, preset="quick")
    (folder / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r"settings\.json is damaged: "):
        runs.run(SMALL, folder, preset="quick")


def test_a_run_that_was_continued_names_every_commit(folder, monkeypatch):
    whole = runs.versions()
    monkeypatch.setattr(runs, "versions", lambda: {**whole, "commit": "first"})
    runs.run(SMALL, folder, preset="quick")
    (folder / "zeta=1--uniform--2-2.npz").unlink()
    monkeypatch.setattr(runs, "versions", lambda: {**whole, "commit": "second"})
    assert runs.run(SMALL, folder, preset="quick").summary["versions"]["commit"] == "first, second"


def test_cells_from_before_the_commit_was_kept_are_still_read(folder):
    runs.run(SMALL, folder, preset="quick")
    before = {}
    for path in (folder / "zeta=0.1--uniform--2-2.npz", folder / "zeta=1--uniform--0-1.npz"):
        before = files.load_arrays(path)
        files.save_arrays(path, {name: array for name, array in before.items() if name != "commit"})
    (now,) = before["commit"]
    assert runs.run(SMALL, folder, preset="quick").summary["versions"]["commit"] == f"{now}, unknown"
    assert results.load(folder).cells["zeta=1", "uniform"]["commit"].tolist() == ["unknown", now]


def test_a_missing_curve_is_named(folder):
    runs.run(SMALL, folder, preset="quick")
    (folder / "zeta=1--uniform--2-2.npz").unlink()
    with pytest.raises(ValueError, match=r"zeta=1--uniform--2-2\.npz is missing"):
        results.load(folder)


def test_the_picture_is_drawn_from_what_is_stored(folder):
    runs.run(SMALL, folder, preset="quick")
    path = curves.regret(results.load(folder))
    assert path == folder / "regret.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_many_panels_take_two_rows_and_none_is_empty(count, shape):
    figure, panels = style.panels(count)
    assert len(panels) == count
    assert panels[0].get_gridspec().get_geometry() == shape
    assert sum(axes.get_visible() for axes in figure.axes) == count
    plt.close(figure)
