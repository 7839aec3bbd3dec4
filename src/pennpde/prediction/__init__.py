"""From a user's case to fields with a certificate.

stages   the whole way: request, prepare, solve, bring back, compare, judge
outcome  what comes out, and files of it
"""

from pennpde.prediction.outcome import Outcome
from pennpde.prediction.stages import Resolution, predict, predict_together

__all__ = ["Outcome", "Resolution", "predict", "predict_together"]
