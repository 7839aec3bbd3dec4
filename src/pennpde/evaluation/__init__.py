"""Evaluation of networks on cases with known fields.

measuring  one timed record per case, and pooled errors as in the paper's tables
"""

from pennpde.evaluation.measuring import KIND, CaseRecord, Evaluation, Model, evaluate

__all__ = ["KIND", "CaseRecord", "Evaluation", "Model", "evaluate"]
