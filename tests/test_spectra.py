import numpy as np
import pytest

from inverse_depth.spectra import power_law


def test_power_law_is_not_normalized():
    spectrum = power_law(4, 0.5)
    assert spectrum.dtype == np.float64
    np.testing.assert_allclose(spectrum, [1.0, 2**-0.5, 3**-0.5, 0.5], rtol=1e-15)


def test_exponent_zero_is_isotropic():
    assert np.array_equal(power_law(3, 0), np.ones(3))


@pytest.mark.parametrize(
    ("d", "exponent", "named"), [(0, 1.0, "d = 0"), (4, -1.0, "-1.0"), (4, float("nan"), "nan")]
)
def test_impossible_spectra_are_named(d, exponent, named):
    with pytest.raises(ValueError, match=named):
        power_law(d, exponent)
