"""From a user's case to fields with a certificate.

prediction      the whole way: complete, scale, remesh, solve, scale back, certify
policy          when a case is predicted on another mesh than its own
certificate     what can be measured without the truth
evidence        the part of it from which the error is estimated, with a field of where it is
calibration     from evidence to an expected error, learned on cases with known error
expected_error  expected errors and grades of a prediction, and their file
calibrating     measures the errors of a network on cases with truth
known_cases     cases with truth from datasets and archives
series          several times: their names, and files that hold all of them
ranges          numbers of a case, and the range that they had in training
"""

from pennpde.prediction.prediction import Outcome, Resolution, predict

__all__ = ["Outcome", "Resolution", "predict"]
