"""How a process computes: its memory and its threads."""

import ctypes
import os

import torch


def keep_freed_memory() -> None:
    """Have glibc keep the buffers that a step frees for the next one.

    Given back to the system, their pages are fetched again in every step, which takes a third of
    the time of a small model.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_threshold, 2**25)


def as_in_a_job() -> None:
    """Compute by hand as the workflow does: on one thread, unless the environment says otherwise.

    Runs share the cores, and sums over more threads may have other last digits.
    """
    keep_freed_memory()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
