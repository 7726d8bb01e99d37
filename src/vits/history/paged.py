"""Histories of many arms in one pool: memory grows with the data, not with arms x horizon.

The pool is divided into pages of a few rows. A page belongs to one arm and names the arm's previous page. So a sum over
an arm's rows visits only its own pages, and a sum for every arm at once is one pass over the pages in use.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from vits.history.base import Minibatch, Term, Total, onto, zeros_like
from vits.history.buffer import History
from vits.types import Observation

PAGE = 32
"""Rows in a page, and so the least number of rows that a played arm takes up."""

WIDE_PAGE = 250
"""Rows in a page if rows have more than `WIDE` features, for larger products. It is not a power of two: the features of
an observation are a pool's length apart, and would then compete for the same lines of the processor's cache."""

WIDE = 64
"""Pages are long if rows have more features than this."""

CHUNK = 16
"""Pages per block of a sum over all arms."""


class PagedHistory(History):
    """The histories of all arms, or of one: `seen`, `last` and `arm` have an entry for each arm, or are scalars.

    Everything else is the shared pool, with room for `capacity` rows. Page p holds rows p * block, ... of the pool,
    which are rows start[p], ... of the arm owner[p]. previous[p] is the arm's previous page, or p itself for its first
    page. A page without an owner starts beyond every row, so that all its weights are 0.
    """

    seen: Int[Array, "*arms"]
    last: Int[Array, "*arms"]
    arm: Int[Array, "*arms"]
    owner: Int[Array, " pages"]
    start: Int[Array, " pages"]
    previous: Int[Array, " pages"]
    used: Int[Array, ""]
    num_arms: int = eqx.field(static=True)

    def of(self, arm: Int[Array, ""]) -> "PagedHistory":
        """The history of one arm."""
        return replace(self, seen=self.seen[arm], last=self.last[arm], arm=self.arm[arm])

    def put(self, arm: Int[Array, ""], history: "PagedHistory") -> "PagedHistory":
        """All histories, after one arm's has changed."""
        seen, last = self.seen.at[arm].set(history.seen), self.last.at[arm].set(history.last)
        return replace(history, seen=seen, last=last, arm=self.arm)

    def without(self, arm: int) -> "PagedHistory":
        """All histories, with that of one arm empty. Its pages are free again, and the pages after them move up."""
        pages = jnp.arange(self.owner.shape[0])
        kept = (pages < self.used) & (self.owner != arm)
        order = jnp.argsort(~kept)  # stable: the pages that stay come first, in the same order
        place, used = jnp.argsort(order), jnp.sum(kept)
        stays = pages < used
        rows = jnp.repeat(stays, self.block)
        slots = (order[:, None] * self.block + jnp.arange(self.block)[None, :]).ravel()
        features = jnp.where(rows[:, None], self._read(slots), 0.0)
        return replace(
            self,
            features=features.T if self.by_columns else features,
            rewards=jnp.where(rows, self.rewards[slots], 0.0),
            seen=self.seen.at[arm].set(0),
            last=jnp.where(self.seen > 0, place[self.last], 0).at[arm].set(0),
            owner=jnp.where(stays, self.owner[order], 0),
            start=jnp.where(stays, self.start[order], self.capacity),
            previous=jnp.where(stays, place[self.previous[order]], 0),
            used=used.astype(self.used.dtype),
        )

    @property
    def axes(self) -> "PagedHistory":
        """The axes of a batch over arms: 0 for fields with an entry per arm, None for shared ones."""
        shared = jax.tree.map(lambda _: None, self)
        return eqx.tree_at(lambda h: (h.seen, h.last, h.arm), shared, (0, 0, 0), is_leaf=lambda x: x is None)

    @property
    def overflowed(self) -> Bool[Array, "*arms"]:
        """Whether there was no room for the last observation."""
        return (self.used > self.owner.shape[0]) | (self.seen > self.capacity)

    def append(self, observation: Observation) -> "PagedHistory":
        """Add one observation, on a new page if the last one is full."""
        page, is_new = self._next_page()
        slot = page * self.block + self.seen % self.block
        index = jnp.where(is_new, page, self.owner.shape[0])  # past the end: not written
        return replace(
            self,
            features=self._at(slot).set(observation.features.astype(self.features.dtype), mode="drop"),
            rewards=self.rewards.at[slot].set(observation.reward.astype(self.rewards.dtype), mode="drop"),
            seen=self.seen + 1,
            last=page,
            owner=self.owner.at[index].set(self.arm, mode="drop"),
            start=self.start.at[index].set(self.seen, mode="drop"),
            previous=self.previous.at[index].set(jnp.where(self.seen == 0, page, self.last), mode="drop"),
            used=self.used + is_new.astype(self.used.dtype),
        )

    def undo_unless(self, accepted: Bool[Array, ""], old: History) -> "PagedHistory":
        """`self` if accepted, else `old`, bit for bit, where `self` is `old` after one `append`.

        The rows that the append wrote were empty before.
        """
        assert isinstance(old, PagedHistory)
        page, is_new = old._next_page()
        slot = jnp.where(accepted, self.rewards.shape[0], page * self.block + old.seen % self.block)
        index = jnp.where(accepted | ~is_new, self.owner.shape[0], page)
        return replace(
            self,
            features=self._at(slot).set(0.0, mode="drop"),
            rewards=self.rewards.at[slot].set(0.0, mode="drop"),
            seen=jnp.where(accepted, self.seen, old.seen),
            last=jnp.where(accepted, self.last, old.last),
            owner=self.owner.at[index].set(0, mode="drop"),
            start=self.start.at[index].set(self.capacity, mode="drop"),
            previous=self.previous.at[index].set(0, mode="drop"),
            used=jnp.where(accepted, self.used, old.used),
        )

    def sum(self, term: Term[Total], start: Total | None = None) -> Total:
        """The sum of a term over the arm's observations, page by page, onto `start`.

        In a batch over all arms of a shared pool, it becomes one pass over the pages in use.
        """
        # The batching rule must see the values that the term has captured, so they are made arguments.
        converted = eqx.filter_closure_convert(term, *self._rows(jnp.asarray(0)), self.rewards[: self.block])
        captured, code = eqx.partition(converted, eqx.is_array)

        def term_with(captured: PyTree[Any]) -> Term[Total]:
            return eqx.combine(captured, code)

        def follow(history: PagedHistory, captured: PyTree[Any]) -> Total:
            return history._follow(term_with(captured))

        def follow_all(
            axis_size: int, batched: Any, history: PagedHistory, captured: PyTree[Any]
        ) -> tuple[Total, PyTree[bool]]:
            history_axes, captured_axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
            if not jax.tree.leaves(history_axes):  # one history, many terms

                def terms(*rows: Array) -> Total:
                    def one(captured: PyTree[Any]) -> Total:
                        return term_with(captured)(*rows)

                    return jax.vmap(one, (captured_axes,))(captured)

                totals = history.sum(terms)
            elif history_axes.features is None and axis_size == history.num_arms:  # one pool, all arms
                totals = history._sum_by_arm(term_with, captured, captured_axes)
            else:
                totals = jax.vmap(follow, (history_axes, captured_axes))(history, captured)
            return totals, jax.tree.map(lambda _: True, totals)

        total: Any = jax.custom_batching.custom_vmap(follow)
        total.def_vmap(follow_all)
        return onto(start, total(self, captured))

    def minibatch(self, key: Key[Array, ""], size: int) -> Minibatch:
        """`size` of the arm's observations, drawn with replacement."""
        rows = jax.random.randint(key, (size,), 0, jnp.maximum(self.count, 1))

        def look(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            page, pages = carry
            return self.previous[page], jnp.where(rows // self.block == self.start[page] // self.block, page, pages)

        _, pages = jax.lax.fori_loop(0, self._num_pages, look, (self.last, jnp.zeros(size, int)))
        slots = pages * self.block + rows % self.block
        weight = self.count.astype(self.rewards.dtype) / size
        return Minibatch(self._read(slots), self.rewards[slots], jnp.full(size, weight), self.count)

    def _follow(self, term: Term[Total]) -> Total:
        def add(i: Int[Array, ""], carry: tuple[Array, Total]) -> tuple[Array, Total]:
            page, total = carry
            filled = self.start[page] + jnp.arange(self.block) < self.count
            weights = (filled & (i * self.block < self.count)).astype(self.rewards.dtype)
            return self.previous[page], jax.tree.map(jnp.add, total, term(*self._rows(page * self.block), weights))

        zero = zeros_like(term, *self._rows(self.last * self.block), self.rewards[: self.block])
        return jax.lax.fori_loop(0, self._num_pages, add, (self.last, zero))[1]

    @property
    def _num_pages(self) -> Int[Array, ""]:
        """The number of pages of the longest history in a batch."""
        return -(-self.longest // self.block)

    def _sum_by_arm(
        self, term_with: Callable[[PyTree[Any]], Term[Total]], captured: PyTree[Any], axes: PyTree[Any]
    ) -> Total:
        """The sums for all arms, each of the term with the arm's own captured values."""

        def of_page(page: Int[Array, ""]) -> Total:
            arm = self.owner[page]
            own = jax.tree.map(
                lambda axis, x: x if axis is None else x[arm], axes, captured, is_leaf=lambda axis: axis is None
            )
            weights = (self.start[page] + jnp.arange(self.block) < self.of(arm).count).astype(self.rewards.dtype)
            return term_with(own)(*self._rows(page * self.block), weights)

        def add(i: Int[Array, ""], totals: Total) -> Total:
            pages = i * CHUNK + jnp.arange(CHUNK)
            terms = jax.vmap(of_page)(pages)
            return jax.tree.map(lambda total, term: total.at[self.owner[pages]].add(term), totals, terms)

        zero = zeros_like(jax.vmap(of_page), self.arm)
        return jax.lax.fori_loop(0, -(-self.used // CHUNK), add, zero)

    def _next_page(self) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The page of the arm's next row, and whether it is a new one."""
        is_new = self.seen % self.block == 0
        return jnp.where(is_new, self.used, self.last), is_new


def paged(history: History, num_arms: int, *, page: int | None = None) -> PagedHistory:
    """Empty histories for `num_arms` arms that share as much room as `history` has."""
    dim = history.features.shape[0 if history.by_columns else 1]
    block = min(page or (PAGE if dim <= WIDE else WIDE_PAGE), history.capacity)
    pages = -(-(-(-history.capacity // block) + num_arms) // CHUNK) * CHUNK
    shape = (pages * block, dim)
    none = jnp.zeros(num_arms, int)
    return PagedHistory(
        features=jnp.zeros(shape[::-1] if history.by_columns else shape, history.features.dtype),
        rewards=jnp.zeros(pages * block, history.rewards.dtype),
        capacity=history.capacity,
        block=block,
        by_columns=history.by_columns,
        seen=none,
        last=none,
        arm=jnp.arange(num_arms),
        owner=jnp.zeros(pages, int),
        start=jnp.full(pages, history.capacity, int),
        previous=jnp.zeros(pages, int),
        used=jnp.zeros((), int),
        num_arms=num_arms,
    )
