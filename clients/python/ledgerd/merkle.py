"""Merkle trees as in RFC 6962, with SHA-256."""

from __future__ import annotations

from typing import List, Sequence

from .codec import sha256


class ProofError(ValueError):
    """A proof that does not hold."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0", data)


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node over two others."""
    return sha256(b"\1", left, right)


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over the hashes of leaves."""
    if not leaves:
        return sha256()
    level = list(leaves)
    while len(level) > 1:
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:  # the last one of an odd level moves up unchanged
            paired.append(level[-1])
        level = paired
    return level[0]


def path_of(leaves: Sequence[bytes], index: int) -> List[bytes]:
    """Return the siblings of a leaf, from the leaf up."""
    path, level = [], list(leaves)
    while len(level) > 1:
        if index ^ 1 < len(level):
            path.append(level[index ^ 1])
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            paired.append(level[-1])
        level, index = paired, index // 2
    return path


def path_length(index: int, size: int) -> int:
    """Return how many hashes the path of a leaf has in a tree of this size."""
    length = 0
    while size > 1:
        if index ^ 1 < size:
            length += 1
        index, size = index // 2, (size + 1) // 2
    return length


def path_root(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root to which the path of a leaf leads. Raises ProofError if none could."""
    if index >= size:
        raise ProofError(f"leaf {index} of a tree of {size}")
    if len(path) != path_length(index, size):
        raise ProofError(f"a path of {len(path)} hashes, not {path_length(index, size)}")
    siblings = iter(path)
    while size > 1:
        if index ^ 1 < size:
            sibling = next(siblings)
            leaf = node_hash(sibling, leaf) if index % 2 else node_hash(leaf, sibling)
        index, size = index // 2, (size + 1) // 2
    return leaf


def verify_path(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Raise ProofError unless the path leads from the leaf at the index to the root."""
    if path_root(leaf, index, size, path) != root:
        raise ProofError("a path that leads to another root")
