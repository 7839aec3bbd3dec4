"""From a user's case to fields with a certificate.

stages   the whole way: request, prepare, solve, bring back, compare, judge
outcome  what comes out
policy   when a case is predicted on another mesh than its own
series   several times: their names, and files that hold all of them
"""

from pennpde.prediction.outcome import Outcome
from pennpde.prediction.policy import Resolution
from pennpde.prediction.stages import predict

__all__ = ["Outcome", "Resolution", "predict"]
