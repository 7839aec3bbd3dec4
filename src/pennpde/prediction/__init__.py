"""From a user's case to fields with a certificate.

prediction   the whole way: complete, scale, remesh, solve, scale back, certify
policy       when a case is predicted on another mesh than its own
certificate  what can be measured without the truth
series       several times: their names, and files that hold all of them
expected_error  how wrong a prediction probably is: error, bound, grade
evidence     what can be measured on a prediction and says how wrong it may be
calibration  from evidence to the error that is likely
calibrating  learning that from cases with truth
known_cases  such cases, from datasets and archives
ranges       numbers of a case, and the range that they had in training
"""

from pennpde.prediction.prediction import Outcome, Resolution, predict

__all__ = ["Outcome", "Resolution", "predict"]
