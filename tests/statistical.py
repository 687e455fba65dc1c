"""Means of samples against expectations."""


def within(measured, expected, samples, spread=None):
    """Whether a mean of `samples` values agrees with its expectation to five standard errors."""
    spread = measured.std() if spread is None else spread
    return abs(float(measured.mean()) - expected) < 5 * float(spread) / samples**0.5
