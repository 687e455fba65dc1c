"""Drawn numbers against PyTorch's, drawn rotations against their definition."""

import math

import pytest
import torch
from statistical import within

from inverse_depth import draws
from inverse_depth.contexts import stream
from inverse_depth.draws import haar_rotations, reflections_product, standard_normal

SHAPES = [(256, 64, 16), (4, 4), (17,), (623,), (7, 7, 7), (1000, 3), (624,), (5,), (1,), (0, 4)]


def test_normal_numbers_are_those_of_pytorch_and_leave_its_generator_where_it_would():
    ours, theirs = stream("training", 1), stream("training", 1)
    for _ in range(3):  # from all kinds of places in the generator's state
        for shape in SHAPES:
            numbers = standard_normal(*shape, generator=ours)
            expected = torch.randn(*shape, generator=theirs)
            assert numbers.shape == expected.shape
            torch.testing.assert_close(numbers, expected, rtol=2e-6, atol=1e-6)
            assert torch.equal(ours.get_state(), theirs.get_state())
        drawn_singly = torch.randn(3, generator=ours, dtype=torch.float64)
        assert torch.equal(drawn_singly, torch.randn(3, generator=theirs, dtype=torch.float64))


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="PyTorch's own code for this CPU rounds otherwise",
)
def test_normal_numbers_are_those_of_pytorch_to_the_bit():
    ours, theirs = stream("training", 2), stream("training", 2)
    numbers = standard_normal(2**22, generator=ours)
    assert torch.equal(numbers, torch.randn(2**22, generator=theirs))


def test_normal_numbers_are_normal():
    numbers = standard_normal(2**22, generator=stream("training", 3)).double()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        assert within(numbers**power, moment, len(numbers))
    beyond = (numbers.abs() > 4).double()
    assert within(beyond, math.erfc(4 / math.sqrt(2)), len(numbers))
    assert within(numbers[1:] * numbers[:-1], 0, len(numbers))
    assert within(numbers[8:] * numbers[:-8], 0, len(numbers))  # partners in a pair


@pytest.mark.parametrize("d", [1, 2, 3, 16, 32])
@pytest.mark.parametrize("count", [1, 63, 64, 200])
def test_reflections_one_by_one_give_the_product_of_matrices(count, d):
    gaussian = standard_normal(count, d, d, generator=stream("training", d))
    rotation = haar_rotations(count, d, stream("training", d))
    assert d <= draws.LARGEST
    torch.testing.assert_close(
        rotation, reflections_product(gaussian.double()).float(), rtol=0, atol=3e-6
    )


@pytest.mark.parametrize("d", [1, 2, 7, 16, 32, 128])
def test_rotations_are_orthogonal(d):
    rotation = haar_rotations(50, d, stream("training", d))
    assert torch.allclose(rotation @ rotation.mT, torch.eye(d), atol=5e-6)


def test_rotations_survive_a_gaussian_number_that_is_zero():
    """In single precision zero has a probability, and it comes up in long trainings."""
    generator = stream("training", 0)
    zeros = 0
    while not zeros:
        state = generator.get_state()
        zeros = int((torch.randn(2**22, 1, 1, generator=generator) == 0).sum())
    generator.set_state(state)
    rotation = haar_rotations(2**22, 1, generator)
    assert torch.allclose(rotation.abs(), torch.ones_like(rotation))


def test_rotations_are_haar():
    """Second and fourth moments, both determinants, and invariance under a fixed rotation."""
    d, n = 4, 100_000
    rotation = haar_rotations(n, d, stream("training", 3))
    fixed = haar_rotations(1, d, stream("training", 4))[0]
    for matrices in (rotation, fixed @ rotation, rotation @ fixed):
        for i, j in ((0, 0), (0, 3), (3, 0), (3, 3), (2, 1)):
            entry = matrices[:, i, j]
            assert within(entry, 0.0, n)
            assert within(entry.square(), 1 / d, n)
            assert within(entry**4, 3 / (d * (d + 2)), n)
        assert within(matrices[:, 0, 0] * matrices[:, 1, 1], 0.0, n)
        trace = matrices.diagonal(dim1=1, dim2=2).sum(-1)
        assert within(trace.square(), 1.0, n)
    assert within(torch.linalg.det(rotation), 0.0, n)
