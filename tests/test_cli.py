import json
import os
import signal
import subprocess
import sys
import time

import pytest

from vits import catalogue, validate


def vits(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-c", "from vits.cli import main; main()", *arguments], capture_output=True, text=True, cwd=cwd
    )


def test_list_names_everything_and_imports_no_jax():
    code = "import sys; from vits.cli import app; app(['list'], standalone_mode=False); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in (*catalogue.ALGORITHMS, *catalogue.EXPERIMENTS):
        assert name in done.stdout


def test_a_run_that_is_interrupted_says_how_to_go_on(tmp_path):
    folder = tmp_path / "out"
    arguments = ["run", "linear", "--algorithms", "uniform,lin_ts", "--horizon", "1000000", "--out", str(folder)]
    # A shell may have started the tests with interrupts ignored, and a child inherits that.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from vits.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not folder.exists() and process.poll() is None:
                time.sleep(0.1)
            time.sleep(5.0)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60.0)  # a cell would take longer
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.endswith("interrupted; run the same command again to resume\n")


def test_run_show_and_plot(tmp_path):
    folder = tmp_path / "out"
    done = vits(
        "run", "linear", "--algorithms", "lin_ts,uniform", "--seeds", "2", "--horizon", "10", "--out", str(folder)
    )
    assert done.returncode == 0, done.stderr
    assert "lin_ts" in done.stdout
    assert {row["algorithm"] for row in json.loads((folder / "summary.json").read_text())["rows"]} == {
        "lin_ts",
        "uniform",
    }
    (folder / "regret.png").unlink()
    assert "lin_ts" in vits("show", str(folder)).stdout
    assert vits("plot", str(folder)).returncode == 0
    assert (folder / "regret.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "liner"], "unknown experiment 'liner'; did you mean 'linear'?"),
        (["run", "linear", "--preset", "papers"], "unknown preset 'papers'; did you mean 'paper'?"),
        (["run", "linear", "--algorithms", "vits_iii"], "unknown algorithm 'vits_iii'; did you mean 'vits_ii'?"),
        (["run", "linear", "--seeds", "0"], "seeds must be a whole number of at least 1, but is 0"),
        (["run", "linear", "--horizon", "-5"], "horizon must be a whole number of at least 1, but is -5"),
        (["run", "linear", "--seeds", "many"], "seeds must be a whole number, but is 'many'"),
        (
            ["run", "linear", "--seeds", "1000000000000"],
            "1,000 rounds are 40,000,000,000,000,000 rounds, but",
        ),
        (["run", "kl", "--horizon", "10000000000"], "but at most 10,000,000,000 can be run; use fewer seeds or"),
        (["run", "theory", "--seeds", "99999999"], "but at most 10,000,000,000 can be run"),
        (["tune", "linear", "--tuning-seeds", "100000000000"], "but at most 10,000,000,000 can be run"),
        (["run", "linear", "--max-seeds", "500"], "--max-seeds is for --until-decided"),
        (["run", "linear", "--until-decided", "--max-seeds", "0"], "max_seeds must be a whole number of at least 1"),
        (["run", "linear", "--sedes", "3"], "--sedes"),
        (["show", "nowhere"], "nowhere holds no finished run: summary.json is missing"),
        (["shwo"], "shwo"),
    ],
)
def test_bad_usage_ends_with_one_line_and_exit_code_2(arguments, message, tmp_path):
    done = vits(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}[name])
    with pytest.raises(ValueError, match="2 curves of 500 seeds and 1,000 rounds need 0 GB of memory, but"):
        validate.run_size(500, 1000, 2)
    validate.run_size(300, 1000, 1)


def test_algorithms_that_are_given_twice_add_up(tmp_path):
    folder = tmp_path / "out"
    arguments = ["--algorithms", "lin_ts", "--algorithms", "uniform, lin_ts", "--seeds", "1", "--horizon", "5"]
    done = vits("run", "fixed-linear", *arguments, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert list(dict.fromkeys(row["algorithm"] for row in summary["rows"])) == ["lin_ts", "uniform"]
    assert summary["record"]["command"].endswith("--seeds 1 --horizon 5 --algorithms lin_ts,uniform")
    for file, content in (("settings.json", "{"), ("settings.json", "[]"), ("summary.json", "[]")):
        whole = (folder / file).read_text()
        (folder / file).write_text(content)
        for command in ("show", "plot", "report", "claims"):
            done = vits(command, str(folder))
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
            assert str(folder / file) in done.stderr
        (folder / file).write_text(whole)
    assert vits("show", str(folder)).returncode == 0


def cache_folder(**environment):
    """Where the command line lets JAX keep compiled programs."""
    code = (
        "import os; from vits import files; files.keep_compiled_programs(); "
        "print(os.environ.get('JAX_COMPILATION_CACHE_DIR'))"
    )
    ours = {"JAX_COMPILATION_CACHE_DIR", "VITS_NO_COMPILATION_CACHE"}
    base = {name: value for name, value in os.environ.items() if name not in ours}
    # -S: no start-up file of the environment may set the variable.
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=base | path | environment
    ).stdout.strip()


def test_compiled_programs_are_kept_in_the_users_cache_folder(tmp_path):
    folder = tmp_path / "cache"
    assert cache_folder(XDG_CACHE_HOME=str(folder)) == str(folder / "vits" / "xla")
    assert list((folder / "vits" / "xla").iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"VITS_NO_COMPILATION_CACHE": "1"}, "None"), ({"JAX_COMPILATION_CACHE_DIR": "elsewhere"}, "elsewhere")],
)
def test_the_user_says_whether_and_where_compiled_programs_are_kept(tmp_path, environment, expected):
    assert cache_folder(XDG_CACHE_HOME=str(tmp_path / "cache"), **environment) == expected
    assert not (tmp_path / "cache").exists()


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "vits").write_text("a file where the folder should be")
    assert cache_folder(XDG_CACHE_HOME=str(tmp_path)) == "None"


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_preset_can_be_asked_for_by_its_name(name):
    assert set(catalogue.presets(name)) == set(catalogue.EXPERIMENTS[name].presets)
