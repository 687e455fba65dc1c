"""Theory of the linear-attention model (Appendix A): what training is compared with.

Everything is float64 NumPy; randomness comes from a `numpy.random.Generator` passed in.
"""

from inverse_depth.theory.exponents import (
    FiniteContextReference,
    ValidityConditions,
    constrained_reference,
    exponent_between,
    finite_context_free_reference,
    free_loss,
    free_reference,
    jacobi_free_loss,
    optimal_update_scale,
    repeated_update_loss,
    validity_conditions,
    zeta,
)
from inverse_depth.theory.floor import Floor, monte_carlo_floor
from inverse_depth.theory.mode_decay import CharacteristicDepths, characteristic_depths
from inverse_depth.theory.predictable import (
    PredictableComponent,
    PredictableGeometry,
    mean_top_score,
    predictable_component,
    predictable_geometry,
)

__all__ = [
    "CharacteristicDepths",
    "FiniteContextReference",
    "Floor",
    "PredictableComponent",
    "PredictableGeometry",
    "ValidityConditions",
    "characteristic_depths",
    "constrained_reference",
    "exponent_between",
    "finite_context_free_reference",
    "free_loss",
    "free_reference",
    "jacobi_free_loss",
    "mean_top_score",
    "monte_carlo_floor",
    "optimal_update_scale",
    "predictable_component",
    "predictable_geometry",
    "repeated_update_loss",
    "validity_conditions",
    "zeta",
]
