"""Low-rank factorisation of a matrix of which only some entries are known."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vits import validate


class Entries(NamedTuple):
    """The known entries of a matrix: `value[i]` stands in row `row[i]` and column `column[i]`."""

    row: Int[np.ndarray, " entries"]
    column: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]

    @property
    def transposed(self) -> "Entries":
        """The entries of the transpose."""
        return Entries(self.column, self.row, self.value)


class Factors(NamedTuple):
    """A vector for every row and for every column; their inner products approximate the entries."""

    rows: Float[np.ndarray, "rows dim"]
    columns: Float[np.ndarray, "columns dim"]

    def rmse(self, entries: Entries) -> float:
        """Root mean square error on these entries."""
        fitted = np.sum(self.rows[entries.row] * self.columns[entries.column], axis=1)
        return float(np.sqrt(np.mean(np.square(fitted - entries.value))))


def alternating_least_squares(
    entries: Entries,
    shape: tuple[int, int],
    *,
    dim: int = 5,
    ridge: float = 1.0,
    num_sweeps: int = 50,
    seed: int = 0,
) -> Factors:
    """Factors P, Q of a partly known matrix R, by exact minimisation over P and over Q in turn.

        min over P, Q of  sum over known (i, j) of (R_ij - p_i' q_j)^2 + ridge (|P|^2 + |Q|^2)

    Args:
        entries: the known entries of R.
        shape: rows and columns of R.
        dim: length of the vectors.
        ridge: weight of the penalty.
        num_sweeps: sweeps; each fits all rows, then all columns.
        seed: of the uniform(-1, 1) start.

    Returns:
        The factors; zero for rows and columns without a known entry.

    Example:
        >>> import numpy as np
        >>> known = Entries(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 2.0, 4.0]))
        >>> factors = alternating_least_squares(known, (2, 2), dim=1, ridge=1e-3)
        >>> bool(factors.rmse(known) < 0.01)
        True
    """
    validate.count("dim", dim)
    validate.count("num_sweeps", num_sweeps)
    validate.positive("ridge", ridge)
    num_rows, num_columns = shape
    by_row, by_column = _grouped(entries), _grouped(entries.transposed)
    columns = np.random.default_rng(seed).uniform(-1.0, 1.0, (num_columns, dim))
    for _ in range(num_sweeps):
        rows = _fit(by_row, columns, num_rows, ridge)
        columns = _fit(by_column, rows, num_columns, ridge)
    return Factors(rows, columns)


class _Groups(NamedTuple):
    """Entries sorted by row: group g is row `row[g]` and begins at `start[g]`."""

    row: Int[np.ndarray, " groups"]
    start: Int[np.ndarray, " groups"]
    column: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]


def _grouped(entries: Entries) -> _Groups:
    order = np.argsort(entries.row, kind="stable")
    row, start = np.unique(entries.row[order], return_index=True)
    return _Groups(row, start, entries.column[order], entries.value[order])


def _fit(
    groups: _Groups, columns: Float[np.ndarray, "columns dim"], num_rows: int, ridge: float
) -> Float[np.ndarray, "rows dim"]:
    """p_i = (sum_j q_j q_j' + ridge I)^-1 sum_j R_ij q_j, for all rows at once."""
    dim = columns.shape[1]
    gram = np.empty((len(groups.row), dim, dim))
    moment = np.empty((len(groups.row), dim, 1))
    # One coordinate at a time: a vector of all entries fits into the cache, a matrix of them does not.
    for a in range(dim):
        along = columns[:, a][groups.column]
        moment[:, a, 0] = np.add.reduceat(groups.value * along, groups.start)
        for b in range(a, dim):
            products = (columns[:, a] * columns[:, b])[groups.column]
            gram[:, a, b] = gram[:, b, a] = np.add.reduceat(products, groups.start)
    rows = np.zeros((num_rows, dim))
    rows[groups.row] = np.linalg.solve(gram + ridge * np.eye(dim), moment)[..., 0]
    return rows
