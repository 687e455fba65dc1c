"""How a process computes: its memory, its threads and its compiled loops."""

import ctypes
import os
import signal

import torch

from inverse_depth.draws import haar_rotations


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


def compile_loops() -> None:
    """Compile the loops of `draws`, or load what numba keeps of them, while Ctrl-C waits.

    An interrupt in one of the compiler's callbacks is lost, and the compiler fails for want of what
    the callback should have brought.

    Raises:
        KeyboardInterrupt: when all is compiled, if Ctrl-C was pressed meanwhile.
    """
    pressed = []
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        haar_rotations(1, 4, torch.Generator())  # 16 normal numbers: the fewest drawn by a loop
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def as_in_a_job() -> None:
    """Compute by hand as the workflow does: on one thread, unless the environment says otherwise.

    Runs share the cores, and sums over more threads may have other last digits.
    """
    keep_freed_memory()
    compile_loops()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
