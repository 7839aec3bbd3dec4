"""Numbers that an engineer wants from a flow: forces, losses, flow rates, recirculation, probes, with expected errors.

solved       the flow that they are taken from: fields and the balance of the scheme
quantity     `Quantity` and `Measured`
language     `parse`: what a text names
forces       drag, lift, moments and their coefficients
flows        flow rates, pressure drops, uniformity
walls        wall shear, separation, wakes
regions      probes, extremes, energy, recirculation
usual        those of a flow about which nobody has said what they want to know
calibration  from the difference of two solutions to the error that is likely
foam         OpenFOAM's files of coefficients
"""

from pennpde.quantities.language import KINDS as KINDS
from pennpde.quantities.language import parse as parse
from pennpde.quantities.quantity import Measured as Measured
from pennpde.quantities.quantity import Quantity as Quantity
from pennpde.quantities.solved import SolvedFlow as SolvedFlow
from pennpde.quantities.usual import usual as usual
