"""Contexts: tokens, query, target and teacher, drawn on the device that trains (eq 1-6).

Everything stays in the context's own eigenbasis, where the covariances are diagonal. The Haar
rotation O into the data basis is kept apart and meets only the vectors that meet a weight matrix.
With a = 0 the tokens are isotropic, so O drops out of them and no rotation is drawn; the teacher's
covariance then averages over O to (tr Omega / d) I.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor

from inverse_depth.draws import haar_rotations, standard_normal
from inverse_depth.run import Data, Teacher
from inverse_depth.spectra import power_law


class TeacherLabels(Protocol):
    """What a model sees of the teacher: a linear map from vectors to label channels."""

    def labels(self, vectors: Tensor) -> Tensor:
        """Map (B, ..., d) vectors in the eigenbasis to (B, ..., m) label channels."""


@dataclass(frozen=True)
class AveragedTeacher:
    """The expectation over beta, taken exactly: m = d channels sqrt(omega_k) x_k.

    For a prediction linear in the labels the sum of squared errors over channels is
    (v - t)^T Omega (v - t) = E_beta[(beta^T (v - t))^2].
    """

    scale: Tensor | None  # (d,) square roots of the teacher spectrum, None where all are one

    def labels(self, vectors: Tensor) -> Tensor:
        return vectors if self.scale is None else vectors * self.scale


@dataclass(frozen=True)
class SampledTeacher:
    """One teacher vector a context: m = 1 channel beta^T x."""

    beta: Tensor  # (B, d)

    def labels(self, vectors: Tensor) -> Tensor:
        beta = self.beta.reshape(self.beta.shape[0], *[1] * (vectors.dim() - 2), -1)
        return (vectors * beta).sum(-1, keepdim=True)


@dataclass(frozen=True)
class TokenCovariance:
    """S = X X^T / P of the context's own tokens."""

    tokens: Tensor  # (B, P, d)

    def apply(self, vectors: Tensor) -> Tensor:
        """S v for (B, n, d) vectors: two vector products a token, S is never formed."""
        scores = vectors @ self.tokens.mT
        return scores @ self.tokens / self.tokens.shape[1]

    def matrix(self) -> Tensor:
        """S, (B, d, d)."""
        return self.tokens.mT @ self.tokens / self.tokens.shape[1]


@dataclass(frozen=True)
class WishartCovariance:
    """S = (W + q q^T) / P, W ~ Wishart_d(Sigma, P - 1), from its Bartlett factor.

    The query is one of the P tokens, so q q^T belongs to S; the other P - 1 tokens enter only
    through W = Lambda^1/2 T T^T Lambda^1/2.
    """

    factor: Tensor  # (B, d, d) lower triangular T
    root: Tensor  # (d,) square roots of the input spectrum
    query: Tensor  # (B, d)
    P: int

    def apply(self, vectors: Tensor) -> Tensor:
        """S v for (B, n, d) vectors."""
        inner = (vectors * self.root) @ self.factor
        wishart = (inner @ self.factor.mT) * self.root
        along = vectors @ self.query.unsqueeze(-1)
        return (wishart + along * self.query.unsqueeze(1)) / self.P

    def matrix(self) -> Tensor:
        """S, (B, d, d)."""
        scaled = self.root[:, None] * self.factor
        return (scaled @ scaled.mT + self.query.unsqueeze(2) * self.query.unsqueeze(1)) / self.P


@dataclass(frozen=True)
class PopulationCovariance:
    """S = Sigma, the infinite-context limit."""

    spectrum: Tensor  # (d,)

    def apply(self, vectors: Tensor) -> Tensor:
        """S v for (B, n, d) vectors."""
        return vectors * self.spectrum

    def matrix(self) -> Tensor:
        """S, (d, d)."""
        return torch.diag(self.spectrum)


Covariance = TokenCovariance | WishartCovariance | PopulationCovariance


@dataclass(frozen=True)
class Contexts:
    """B contexts in their eigenbases.

    Attributes:
        tokens: (B, P, d), or None where the context enters only through `covariance`.
        query: (B, d) test input.
        target: (B, d) mean of the selected tokens, of which the target label is the image.
        selected: (B, k) indices of the selected tokens, or None without tokens.
        rotation: (B, d, d) Haar O, or None where the inputs are isotropic.
        covariance: products with the empirical covariance S.
        teacher: the map from vectors to label channels.
    """

    tokens: Tensor | None
    query: Tensor
    target: Tensor
    selected: Tensor | None
    rotation: Tensor | None
    covariance: Covariance
    teacher: TeacherLabels

    def rotated(self, vectors: Tensor) -> Tensor:
        """O v: from the eigenbasis to the data basis, (B, n, d)."""
        return vectors if self.rotation is None else vectors @ self.rotation.mT

    def unrotated(self, vectors: Tensor) -> Tensor:
        """O^T v: from the data basis to the eigenbasis, (B, n, d)."""
        return vectors if self.rotation is None else vectors @ self.rotation

    def data_covariance(self) -> Tensor:
        """O S O^T, the empirical covariance in the data basis, (B, d, d)."""
        S = self.covariance.matrix()
        return S if self.rotation is None else self.rotation @ S @ self.rotation.mT


def stream(name: str, seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for each purpose (weights, training, validation, evaluation)."""
    offsets = {"weights": 1, "training": 2, "validation": 3, "evaluation": 4, "bootstrap": 5}
    generator = torch.Generator(device=device)
    generator.manual_seed(seed * 1_000 + offsets[name])
    return generator


def bartlett_factors(count: int, d: int, freedom: int, generator: torch.Generator) -> Tensor:
    """Lower-triangular T (count, d, d) with T T^T ~ Wishart_d(I, freedom).

    Raises:
        ValueError: if `freedom` < d, where the Wishart matrix is singular.
    """
    if freedom < d:
        raise ValueError(f"P - 1 = {freedom} must be at least d = {d} for the Wishart shortcut")
    normals = standard_normal(count, d, d, generator=generator).tril(-1)
    shape = (freedom - torch.arange(d, device=generator.device, dtype=torch.float64)) / 2
    chi_squared = 2 * torch._standard_gamma(shape.expand(count, d).contiguous(), generator)
    return normals + torch.diag_embed(chi_squared.sqrt().float())


def _teacher(data: Data, kind: Teacher, count: int, generator: torch.Generator) -> TeacherLabels:
    omega = torch.from_numpy(power_law(data.d, data.b)).to(generator.device, torch.float32)
    if kind != "sampled":
        if data.b == 0:
            return AveragedTeacher(None)
        scale = omega if data.a > 0 else omega.mean().expand(data.d)
        return AveragedTeacher(scale.sqrt())
    normals = standard_normal(count, data.d, generator=generator)
    beta = normals * omega.sqrt()
    if data.a == 0 and data.b > 0:
        direction = standard_normal(count, data.d, generator=generator)
        length = torch.linalg.vector_norm(beta, dim=-1, keepdim=True)
        beta = torch.nn.functional.normalize(direction, dim=-1) * length
    return SampledTeacher(beta)


def sample_contexts(
    data: Data, count: int, teacher: Teacher, generator: torch.Generator, tokens: bool = True
) -> Contexts:
    """Draw `count` contexts (float32, on the generator's device).

    With `tokens` False, and on the easy task, the covariance is sampled in place of the tokens.

    Raises:
        ValueError: if the task cannot be drawn without tokens.
    """
    device = generator.device
    root = torch.from_numpy(power_law(data.d, data.a)).to(device, torch.float32).sqrt()
    rotation = haar_rotations(count, data.d, generator) if data.a > 0 else None
    labels = _teacher(data, teacher, count, generator)
    if data.P is None or not tokens:
        if data.task != "easy":
            raise ValueError(f"task {data.task} needs context tokens, P = {data.P}")
        query = standard_normal(count, data.d, generator=generator) * root
        if data.P is None:
            covariance: Covariance = PopulationCovariance(root.square())
        else:
            factor = bartlett_factors(count, data.d, data.P - 1, generator)
            covariance = WishartCovariance(factor, root, query, data.P)
        return Contexts(None, query, query, None, rotation, covariance, labels)
    X = standard_normal(count, data.P, data.d, generator=generator)
    if data.a > 0:
        X *= root
    query, selected = import_module(f"inverse_depth.tasks.{data.task}").draw(
        X, root, data, generator
    )
    chosen = X.gather(1, selected.unsqueeze(-1).expand(-1, -1, data.d))
    return Contexts(X, query, chosen.mean(1), selected, rotation, TokenCovariance(X), labels)
