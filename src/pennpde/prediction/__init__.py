"""From a user's case to fields with a certificate.

prediction   the whole way: complete, scale, remesh, solve, scale back, certify
policy       when a case is predicted on another mesh than its own
certificate  what can be measured without the truth
series       several times: their names, and files that hold all of them
ranges       numbers of a case, and the range that they had in training
"""

from pennpde.prediction.prediction import Outcome, Resolution, predict

__all__ = ["Outcome", "Resolution", "predict"]
