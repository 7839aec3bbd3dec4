"""Evaluation of networks on cases with known fields.

measuring  one timed record per case, and pooled errors as in the paper's tables
moments    relative errors at every moment and in the steady state, of networks for any time
floors     what can be had without a network: the start, the nearest training case
"""

from pennpde.evaluation.measuring import KIND, CaseRecord, Evaluation, Model, evaluate
from pennpde.evaluation.moments import MomentEvaluation, evaluate_moments

__all__ = ["KIND", "CaseRecord", "Evaluation", "Model", "MomentEvaluation", "evaluate", "evaluate_moments"]
