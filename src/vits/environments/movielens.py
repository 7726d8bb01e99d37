"""Recommending movies: users and movies of MovieLens-1M, each a vector of a low-rank factorisation."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from vits import validate
from vits.datasets import movielens as data
from vits.datasets.factorise import Factors
from vits.environments.base import Environment
from vits.environments.fixed_arms import Means as Scale
from vits.environments.fixed_arms import bernoulli, identity
from vits.types import Round


class MovieLensParams(NamedTuple):
    """The movies that one seed drew: arm a pays with probability sigmoid(x' movies[a]).

    `start` is the factorisation that it drew, if there are several.
    """

    movies: Float[Array, "arms dim"]
    start: Int[Array, ""] | None = None


class MovieLens(Environment):
    """Each round has one user, whose vector x is the features of every arm; movie a pays Ber(sigmoid(x' theta_a)).

    All users and movies are fields, which a batch of seeds shares; a seed stores the movies it drew. `scale` turns the
    logits x' theta_a into the expected rewards in which regret is measured. With vectors from several factorisations,
    along the first axis, each seed draws one factorisation.
    """

    users: Float[Array, "*starts users dim"]
    movies: Float[Array, "*starts movies dim"]
    scale: Scale
    num_arms: int
    dim: int

    def init(self, key: Key[Array, ""]) -> MovieLensParams:
        """`num_arms` movies without replacement, from a factorisation that is drawn first if there are several."""
        if self.movies.ndim == 2:
            return MovieLensParams(jax.random.choice(key, self.movies, (self.num_arms,), replace=False))
        start_key, key = jax.random.split(key)
        start = jax.random.randint(start_key, (), 0, self.movies.shape[0])
        return MovieLensParams(jax.random.choice(key, self.movies[start], (self.num_arms,), replace=False), start)

    def draw(self, key: Key[Array, ""], params: MovieLensParams, t: Int[Array, ""]) -> Round:
        """x = a uniformly drawn user;  r_a ~ Ber(sigmoid(x' theta_a))."""
        user_key, reward_key = jax.random.split(key)
        user = jax.random.randint(user_key, (), 0, self.users.shape[-2])
        x = self.users[user] if params.start is None else self.users[params.start, user]
        logits = params.movies @ x
        rewards = bernoulli(reward_key, jax.nn.sigmoid(logits))
        return Round(jnp.broadcast_to(x, (self.num_arms, self.dim)), self.scale(logits), rewards)


class MoviePrior(NamedTuple):
    """The prior of a movie that has no ratings yet: N(mean, diag(variance))."""

    mean: Float[Array, " dim"]
    variance: Float[Array, " dim"]


def movie_prior(params: MovieLensParams) -> MoviePrior:
    """Mean and variance, coordinate by coordinate, of the movies drawn."""
    return MoviePrior(jnp.mean(params.movies, axis=0), jnp.var(params.movies, axis=0))


def movielens(
    folder: str | Path | None = None,
    num_arms: int = 100,
    *,
    scale: str = "probability",
    dim: int = 5,
    ridge: float = 1.0,
    num_sweeps: int = 50,
    seed: int = 0,
    edition: data.Edition = data.ML_1M,
) -> MovieLens:
    """Recommending one of `num_arms` movies to a user: r_a ~ Ber(sigmoid(x' theta_a)).

    Users x and movies theta come from a factorisation of the ratings minus 3. It takes about ten seconds once and is
    then kept in the user's cache folder.

    Args:
        folder: the folder with `ratings.dat`, or the official `ml-1m.zip`; by default the environment variable
            VITS_DATA, or where `vits data movielens` puts it.
        num_arms: number of movies, which each seed draws from the rated ones.
        scale: the unit of regret: "probability" of a reward, or its "logit". The rounds are the same.
        dim: length of the vectors.
        ridge: penalty of the factorisation.
        num_sweeps: sweeps of the factorisation.
        seed: of the factorisation's start.
        edition: what a complete copy of the data looks like.

    Returns:
        An environment. Every arm has its own parameters, so use policies with `per_arm=num_arms`.

    Example:
        >>> import vits
        >>> vits.environments.movielens("nowhere")
        Traceback (most recent call last):
        ValueError: nowhere holds no MovieLens-1M, ...

    Reference:
        Harper and Konstan, "The MovieLens datasets: history and context", ACM TiiS 5(4), 2015.
    """
    num_arms = validate.count("num_arms", num_arms, least=2)
    measure = validate.choice("scale", scale, SCALES)
    found = data.factorised(folder, dim=dim, ridge=ridge, num_sweeps=num_sweeps, seed=seed, edition=edition)
    return from_factors([found.factors], num_arms, measure)


def from_factors(starts: Sequence[Factors], num_arms: int = 100, scale: Scale = jax.nn.sigmoid) -> MovieLens:
    """The environment with the user and movie vectors of one factorisation, or of several from different starts."""
    num_movies, dim = starts[0].columns.shape
    if num_arms > num_movies:
        raise ValueError(f"num_arms must be at most {num_movies}, the number of rated movies, but is {num_arms}")
    users = jnp.asarray(np.stack([factors.rows for factors in starts]), float)
    movies = jnp.asarray(np.stack([factors.columns for factors in starts]), float)
    if len(starts) == 1:
        users, movies = users[0], movies[0]
    return MovieLens(users=users, movies=movies, scale=scale, num_arms=num_arms, dim=dim)


SCALES: dict[str, Scale] = {"probability": jax.nn.sigmoid, "logit": identity}
