"""Delete-a-block jackknife: standard errors of nonlinear functions of means."""

from collections.abc import Callable

import numpy as np


def contexts_per_block(contexts: int, blocks: int) -> int:
    """Size of the equal blocks of contexts; ValueError where they cannot be equal."""
    if blocks < 2:
        raise ValueError(f"blocks = {blocks}: a jackknife needs at least 2 blocks")
    if contexts < blocks or contexts % blocks:
        raise ValueError(
            f"contexts = {contexts}: must be a positive multiple of blocks = {blocks}, "
            "so that the jackknife's blocks are equal"
        )
    return contexts // blocks


def leave_one_out_means(block_means: np.ndarray) -> np.ndarray:
    """(blocks, ...) means over all blocks but one, for equal blocks."""
    blocks = len(block_means)
    return (block_means.sum(axis=0) - block_means) / (blocks - 1)


def delete_block_jackknife(
    estimator: Callable[[np.ndarray], np.ndarray], block_means: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate and standard error of `estimator(mean)`.

    block_means: (blocks, ...) the means over equal, independent blocks of samples.
    """
    estimate = np.asarray(estimator(block_means.mean(axis=0)))
    replicates = np.array([estimator(mean) for mean in leave_one_out_means(block_means)])
    return estimate, np.sqrt((len(replicates) - 1) * replicates.var(axis=0))
