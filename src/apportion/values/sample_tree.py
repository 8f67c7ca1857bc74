"""Every scored sample of a group in one tree of tokens: what each tells about the prefixes that it runs through.

A sample starts at some node (a rollout at its prompt, a continuation at its prefix) and was drawn freely from there on.
So it is a fair draw at every node from its start down, and at no node above. The value of a node is the mean, over the
samples that run through it freely, of the value of the next node on each one's way, or of its score where no node
follows. With that a sample far below is not lost to the nodes above it, and samples that run through one prefix count
for it wherever they started. Unbiased, since the value of the next node is what the sample's score is expected to be
once it is known that it got there. A mean that makes less of few samples: see `values.belief`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from apportion.errors import InputError
from apportion.values.belief import UNIT, Mean, Span, sample_mean, standard_error


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error and the samples behind it.

    count: samples that ran through the prefix freely; with none, mean and error are NaN. error: see `values.belief`.
    """

    mean: float
    error: float
    count: int


UNKNOWN = Estimate(float("nan"), float("nan"), 0)


@dataclass
class _Node:
    """A prefix that is valued. samples: where each sample that ran through it freely went next, or its score."""

    depth: int
    nexts: list[_Node | float] = field(default_factory=list)
    estimate: Estimate = UNKNOWN


@dataclass
class _Branch:
    """A token in the tree; `node` where a valued prefix ends with it."""

    children: dict[int, _Branch] = field(default_factory=dict)
    node: _Node | None = None


class SampleTree:
    """Samples and valued prefixes of any number of groups.

    span: lowest and highest score that there can be. mean: what a value is, of its samples' total and count.
    """

    def __init__(self, span: Span = UNIT, mean: Mean = sample_mean) -> None:
        self._span, self._mean = span, mean
        self._roots: dict[Hashable, _Branch] = {}
        self._nodes: dict[tuple[Hashable, tuple[int, ...]], _Node] = {}
        self._fresh = False

    def mark(self, group: Hashable, tokens: Sequence[int]) -> None:
        """Value this prefix. All prefixes are marked before the first sample is added."""
        branch = self._roots.setdefault(group, _Branch())
        for token in tokens:
            branch = branch.children.setdefault(token, _Branch())
        if branch.node is None:
            branch.node = self._nodes[group, tuple(tokens)] = _Node(len(tokens))

    def add(self, group: Hashable, tokens: Sequence[int], start: int, score: float) -> None:
        """Add a sample that was drawn freely behind its first `start` tokens.

        Raises InputError for a score outside the span.
        """
        self._refuse_outside(group, score)
        path: list[_Node | float] = [node for node in self._way(group, tokens) if node.depth >= start]
        for node, following in zip(path, [*path[1:], score], strict=False):  # an empty path has nothing to follow
            assert isinstance(node, _Node)
            node.nexts.append(following)
        self._fresh = False

    def add_alone(self, group: Hashable, prefix: Sequence[int], score: float) -> None:
        """Add a sample that counts for the marked prefix that it started at, and for no other."""
        self._refuse_outside(group, score)
        self._nodes[group, tuple(prefix)].nexts.append(score)
        self._fresh = False

    def estimate(self, group: Hashable, tokens: Sequence[int]) -> Estimate:
        """The value of a marked prefix."""
        if not self._fresh:
            for node in sorted(self._nodes.values(), key=lambda node: -node.depth):
                node.estimate = self._estimated(node)
            self._fresh = True
        return self._nodes[group, tuple(tokens)].estimate

    def _estimated(self, node: _Node) -> Estimate:
        found = [after.estimate.mean if isinstance(after, _Node) else after for after in node.nexts]
        if not found:
            return UNKNOWN
        total, count = sum(found), len(found)
        return Estimate(self._mean(total, count, self._span), standard_error(total, count, self._span), count)

    def _way(self, group: Hashable, tokens: Sequence[int]) -> list[_Node]:
        """The marked prefixes of a sequence, from the shortest."""
        branches = [self._roots.get(group)]
        for token in tokens:
            branches.append(branches[-1].children.get(token) if branches[-1] else None)
        return [branch.node for branch in branches if branch and branch.node]

    def _refuse_outside(self, group: Hashable, score: float) -> None:
        low, high = self._span
        if not low <= score <= high:
            raise InputError(
                f"group {group!r}: a score of {score} lies outside the span of {low} to {high}; set `span`"
            )
