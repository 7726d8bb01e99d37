"""Small agents for the tests, and what they should believe."""

import numpy as np

import vits

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 2)).astype(np.float32)
REWARDS = ROWS @ np.array([1.0, -0.5], np.float32) + 0.1 * RNG.normal(size=40).astype(np.float32)
ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


def lin_ts(**settings):
    return vits.Agent("lin_ts", vits.models.linear(2), **settings)


def laplace(**settings):
    return vits.Agent("laplace_ts", vits.models.logistic(2), num_steps=5, **settings)


def ridge(rows, rewards):
    precision = np.eye(rows.shape[1]) + rows.T @ rows
    return np.linalg.solve(precision, rows.T @ rewards), np.linalg.inv(precision)


def assert_posterior(agent, rows, rewards, arm=None):
    belief = agent.posterior(arm, samples=2)
    mean, covariance = ridge(np.asarray(rows, float).reshape(-1, 2), np.asarray(rewards, float))
    np.testing.assert_allclose(belief.mean, mean, atol=2e-5)
    np.testing.assert_allclose(belief.covariance, covariance, atol=2e-5)
