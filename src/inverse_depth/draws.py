"""Random numbers and rotations, of which contexts are made.

On a CPU loops compiled by numba draw them in less than half the time of PyTorch's own operations.
The normal numbers are PyTorch's bit for bit where PyTorch uses AVX2, as on every recent x86 CPU; a
test compares them. Elsewhere the last digits may differ.
"""

import math

import numpy as np
import torch
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor

# What keeps numba from widening numbers of 32 bits.
_f32, _i32, _u32 = np.float32, np.int32, np.uint32

# Generators ---------------------------------------------------------------------------------------

STATE = 624  # words of the Mersenne twister
# Where they lie in a generator's state, in words of 64 bits: seed; numbers left and whether seeded;
# next number; the twister's words; what normal numbers drawn singly left over.
_LEFT, _NEXT, _WORDS = 1, 2, slice(3, 3 + STATE)


def standard_normal(*shape: int, generator: torch.Generator) -> Tensor:
    """`torch.randn(*shape)`, on the generator's device: same numbers, same state after."""
    count = math.prod(shape)
    if generator.device.type != "cpu" or count < 16:
        return torch.randn(*shape, generator=generator, device=generator.device)
    state = generator.get_state()
    fields = state.numpy().view(np.uint64)
    words = fields[_WORDS].astype(np.uint32)
    numbers = torch.empty(*shape)
    left = fields[_LEFT : _LEFT + 1].view(np.int32)
    used = _normal_numbers(words, STATE + 1 - left[0], numbers.view(-1).numpy())
    left[0] = STATE + 1 - used
    fields[_NEXT], fields[_WORDS] = used, words
    generator.set_state(state)
    return numbers


@njit(cache=True)
def _normal_numbers(words, used, numbers):
    """Fill `numbers`, return how many of the twister's current words are used.

    As in PyTorch, every 16 numbers are made of 16 uniform ones, and where the last are fewer the
    last 16 are drawn again.
    """
    halves = np.empty((2, 256), np.float32)
    used = _uniform_numbers(words, used, numbers)
    whole = numbers.size // 16 * 16
    for start in range(0, whole, 512):
        _box_muller(numbers[start : min(start + 512, whole)], halves)
    if whole < numbers.size:
        last = numbers[numbers.size - 16 :]
        used = _uniform_numbers(words, used, last)
        _box_muller(last, halves)
    return used


@njit(cache=True)
def _uniform_numbers(words, used, numbers):
    """Uniform on [0, 1) with 24 bits, from the Mersenne twister (Matsumoto and Nishimura 1998)."""
    done = 0
    while done < numbers.size:
        if used == STATE:
            _twist(words)
            used = 0
        count = min(STATE - used, numbers.size - done)
        _temper(words[used : used + count], numbers[done : done + count])
        used += count
        done += count
    return used


@njit(cache=True, inline="always")
def _twisted(word, following):
    mixed = _u32(_u32(word & _u32(0x80000000)) | _u32(following & _u32(0x7FFFFFFF)))
    odd = _u32(_u32(0) - _u32(following & _u32(1)))
    return _u32(_u32(mixed >> _u32(1)) ^ _u32(odd & _u32(0x9908B0DF)))


@njit(cache=True)
def _twist(words):
    for i in range(227):
        words[i] = _u32(words[i + 397] ^ _twisted(words[i], words[i + 1]))
    for i in range(396):
        words[i + 227] = _u32(words[i] ^ _twisted(words[i + 227], words[i + 228]))
    words[623] = _u32(words[396] ^ _twisted(words[623], words[0]))


@njit(cache=True)
def _temper(words, numbers):
    for i in range(words.size):
        y = words[i]
        y = _u32(y ^ _u32(y >> _u32(11)))
        y = _u32(y ^ _u32(_u32(y << _u32(7)) & _u32(0x9D2C5680)))
        y = _u32(y ^ _u32(_u32(y << _u32(15)) & _u32(0xEFC60000)))
        y = _u32(y ^ _u32(y >> _u32(18)))
        numbers[i] = _f32(_i32(y & _u32(0xFFFFFF))) * _f32(2.0**-24)


@njit(cache=True)
def _box_muller(numbers, halves):
    """Normal numbers from uniform ones, in their place: 8 for radii beside 8 for angles."""
    groups = numbers.reshape(-1, 2, 8)
    count = groups.shape[0]
    a, b = halves[0, : 8 * count].reshape(-1, 8), halves[1, : 8 * count].reshape(-1, 8)
    for k in range(count):
        for i in range(8):
            a[k, i], b[k, i] = groups[k, 0, i], groups[k, 1, i]
    _pairs(halves[0, : 8 * count], halves[1, : 8 * count])
    for k in range(count):
        for i in range(8):
            groups[k, 0, i], groups[k, 1, i] = a[k, i], b[k, i]


@intrinsic
def _fma(context, x, y, z):
    """x y + z, rounded once."""
    signature = types.float32(types.float32, types.float32, types.float32)
    return signature, lambda context, builder, signature, numbers: builder.fma(*numbers)


@njit(cache=True)
def _pairs(u, v):
    """sqrt(-2 log(1 - u)) times cosine and sine of 2 pi v, in the place of u and v."""
    for i in range(u.size):
        radius = _f32(math.sqrt(_f32(-2) * _log(_f32(1) - u[i])))
        cosine, sine = _cosine_and_sine(_f32(2 * math.pi) * v[i])
        u[i], v[i] = radius * cosine, radius * sine


# Logarithm, sine and cosine for single precision, from the Cephes library (Moshier), in the order
# of operations of PyTorch's compiled code.


@njit(cache=True, inline="always")
def _log(x):
    """Of a positive normal number."""
    bits = _f32(x).view(_i32)
    exponent = _f32(_i32(bits >> _i32(23)) - _i32(126))
    x = _i32(_i32(bits & _i32(0x007FFFFF)) | _i32(0x3F000000)).view(_f32)
    small = x < _f32(0.707106781186547524)
    x = (_f32(x + x) if small else x) - _f32(1)
    exponent = exponent - _f32(1) if small else exponent
    z = x * x
    y = _fma(_f32(7.0376836292e-2), x, _f32(-1.1514610310e-1))
    y = _fma(y, x, _f32(1.1676998740e-1))
    y = _fma(y, x, _f32(-1.2420140846e-1))
    y = _fma(y, x, _f32(1.4249322787e-1))
    y = _fma(y, x, _f32(-1.6668057665e-1))
    y = _fma(y, x, _f32(2.0000714765e-1))
    y = _fma(y, x, _f32(-2.4999993993e-1))
    y = _fma(y, x, _f32(3.3333331174e-1))
    y = _fma(y * x, z, exponent * _f32(-2.12194440e-4))
    y = _fma(-z, _f32(0.5), y)
    return _fma(exponent, _f32(0.693359375), x + y)


@njit(cache=True, inline="always")
def _cosine_and_sine(x):
    """Of an angle that is not negative."""
    octant = _i32(_i32(_i32(x * _f32(1.27323954473516)) + _i32(1)) & _i32(-2))
    y = _f32(octant)
    x = _fma(y, _f32(-0.78515625), x)
    x = _fma(y, _f32(-2.4187564849853515625e-4), x)
    x = _fma(y, _f32(-3.77489497744594108e-8), x)
    z = x * x
    c = _fma(_f32(2.443315711809948e-5), z, _f32(-1.388731625493765e-3))
    c = _fma(c, z, _f32(4.166664568298827e-2)) * z
    c = _fma(c, z, -(_f32(0.5) * z)) + _f32(1)
    s = _fma(_f32(-1.9515295891e-4), z, _f32(8.3321608736e-3))
    s = _fma(_fma(s, z, _f32(-1.6666654611e-1)) * z, x, x)
    swapped = _i32(octant & _i32(2)) != _i32(0)
    cosine, sine = (s if swapped else c), (c if swapped else s)
    sine = -sine if _i32(octant & _i32(4)) != _i32(0) else sine
    cosine = -cosine if _i32(_i32(octant - _i32(2)) & _i32(4)) == _i32(0) else cosine
    return cosine, sine


# Rotations ----------------------------------------------------------------------------------------

LANES = 64  # matrices that a loop works on at once
LARGEST = 32  # dimension up to which they are faster than products of matrices


def haar_rotations(count: int, d: int, generator: torch.Generator) -> Tensor:
    """`count` Haar-distributed orthogonal matrices (count, d, d), float32.

    A product of reflections H_1 ... H_d along Gaussian vectors of falling dimension, with signs,
    is exactly Haar (Stewart 1980).
    """
    gaussian = standard_normal(count, d, d, generator=generator)
    if gaussian.device.type != "cpu" or d > LARGEST:
        return reflections_product(gaussian)
    rotation = torch.empty_like(gaussian)
    _reflections_product(gaussian.numpy(), rotation.numpy())
    return rotation


def reflections_product(gaussian: Tensor) -> Tensor:
    """The product of the reflections along the columns of the lower triangle, (B, d, d).

    With columns u_i of squared length two it is I - U T U^T, T^-1 = I + strictly upper part of
    U^T U: matrix products and one triangular solve, fast in batches on every device and without
    the ill-conditioned cases of a QR by Cholesky.
    """
    gaussian = gaussian.tril()
    # Reflector i is g_i + sign_i |g_i| e_i, and g_j has no entry i < j: all inner products follow
    # from those of the Gaussian columns g.
    gram = gaussian.mT @ gaussian
    diagonal = gaussian.diagonal(dim1=1, dim2=2)
    signs = torch.where(diagonal < 0, -1.0, 1.0)
    shift = signs * gram.diagonal(dim1=1, dim2=2).sqrt()
    reflected = gaussian + torch.diag_embed(shift)
    # A Gaussian number that came out as zero is a vector of dimension one that reflects nothing.
    squared = (shift * reflected.diagonal(dim1=1, dim2=2)).clamp_min(1e-30)
    inverse_length = squared.rsqrt()
    U = reflected * inverse_length.unsqueeze(1)
    products = gram + gaussian.mT * shift.unsqueeze(1)
    scales = inverse_length.unsqueeze(1) * inverse_length.unsqueeze(2)
    identity = torch.eye(gaussian.shape[-1], device=gaussian.device)
    inverse_T = (products * scales).triu(1) + identity
    TUt = torch.linalg.solve_triangular(inverse_T, U.mT, upper=True)
    return (identity - U @ TUt) * -signs.unsqueeze(1)


@njit(cache=True, fastmath={"contract", "reassoc"})
def _reflections_product(gaussian, rotation):
    """The same one reflection after the other, from the last to the first, LANES matrices at once.

    H_j touches rows and columns from j on, where the product of the later ones is not the identity.
    """
    count, d = gaussian.shape[0], gaussian.shape[1]
    u, Q = np.zeros((d, LANES), np.float32), np.empty((d, d, LANES), np.float32)
    sign, along = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        Q[:] = 0
        for j in range(d - 1, -1, -1):
            along[:] = 0
            for i in range(j, d):
                for lane in range(lanes):
                    u[i, lane] = gaussian[first + lane, i, j]
                for lane in range(LANES):
                    along[lane] += u[i, lane] * u[i, lane]
            for lane in range(LANES):
                sign[lane] = _f32(-1) if u[j, lane] < 0 else _f32(1)
                length = _f32(math.sqrt(along[lane]))
                u[j, lane] += sign[lane] * length
                squared = max(length * abs(u[j, lane]), _f32(1e-30))
                along[lane] = _f32(1) / _f32(math.sqrt(squared))
            for i in range(j, d):
                for lane in range(LANES):
                    u[i, lane] *= along[lane]
            Q[j, j] = 1
            for column in range(j, d):
                along[:] = 0
                for i in range(j, d):
                    for lane in range(LANES):
                        along[lane] += u[i, lane] * Q[i, column, lane]
                for i in range(j, d):
                    for lane in range(LANES):
                        Q[i, column, lane] -= u[i, lane] * along[lane]
            # The signs go to columns, which later reflections only mix within themselves.
            for i in range(j, d):
                for lane in range(LANES):
                    Q[i, j, lane] *= -sign[lane]
        for lane in range(lanes):
            for i in range(d):
                for column in range(d):
                    rotation[first + lane, i, column] = Q[i, column, lane]
