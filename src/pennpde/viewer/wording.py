"""Texts of the page for a prediction: the network, the certificate, errors against the reference solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde import metrics
from pennpde.checkpoints import Config
from pennpde.prediction import Outcome
from pennpde.prediction.series import time_name
from pennpde.trust.certificate import Certificate


def about(name: str, config: Config | None) -> list[dict[str, str]]:
    """Which network this is and how it was trained, in rows of words."""
    if config is None:
        return [_row("Network", name), _row("Training", "unknown: the network has no configuration")]
    rows = [_row("Network", name), _row("Size", f"{config.parameters:,} parameters")]
    arguments = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in config.arguments.items())
    if arguments:
        rows.append(_row("Settings", arguments))
    training, dataset = config.training, config.dataset
    if not training and not config.row:
        rows.append(_row("Training", "none: untrained weights"))
        return rows
    count = f"{dataset['train']} cases" if "train" in dataset else "an unnamed number of cases"
    rows.append(_row("Trained on", f"{count} of {dataset.get('kind', 'an unnamed dataset')}"))
    if dataset.get("note"):
        rows.append(_row("Note", str(dataset["note"])))
    how = [f"{training[key]:.0f} {key}" for key in ("epochs", "minutes") if isinstance(training.get(key), int | float)]
    if training.get("device"):
        how.append(f"on {training['device']}")
    if training.get("finished") is False:
        how.append("not finished")
    if config.row:
        rows.append(_row("Experiment", config.row))
    if how:
        rows.append(_row("Training", ", ".join(how)))
    for split, errors in config.metrics.items():
        if isinstance(errors, Mapping):
            numbers = ", ".join(f"{key} {value:.2e}" for key, value in errors.items() if isinstance(value, int | float))
            if numbers:
                rows.append(_row(f"Error, {split}", numbers))
    return rows


def facts(outcome: Outcome, headline: Sequence[str] = ()) -> list[str]:
    """The case in a few words, with those of the equation's numbers that are worth it (`Equation.headline`)."""
    case = outcome.case
    words = [f"{case.number_of_points:,} points", f"{case.mesh.number_of_cells:,} cells"]
    words += [f"{name} {outcome.numbers[name]:.4g}" for name in headline if name in outcome.numbers]
    first, last = outcome.times[0], outcome.times[-1]
    words.append(time_name(last) if first == last else f"t = {first:.4g} to {last:.4g}")
    if outcome.companion is not None:
        words.append(f"predicted on {outcome.companion.mesh.number_of_cells:,} triangles of the network's spacing")
    return words


def _row(label: str, value: str, level: str = "", note: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "level": level, "note": note}


def measures(certificate: Certificate) -> list[dict[str, Any]]:
    """The certificate's measures, each with a level: good, bad, or none where only a person can judge."""
    rows: list[dict[str, Any]] = []
    for name, error in certificate.dirichlet.items():
        exact = error == 0
        rows.append(
            _row(
                f"Prescribed {name}",
                "exact" if exact else f"{error:.1e}",
                "good" if exact else "bad",
                "largest deviation",
            )
        )
    levels = {True: "good", False: "bad", None: ""}
    rows += [_row(each.name.capitalize(), each.text, levels[each.passed]) for each in certificate.checks]
    rows += [
        _row(f"Normal derivative of {name}", f"{error:.1e}", note="root mean square error")
        for name, error in certificate.neumann.items()
    ]
    history = [value for each in certificate.residuals for value in each]
    if history:
        grew = certificate.residual_grew
        level = "bad" if certificate.diverged or grew else "good" if certificate.converged else ""
        how = "converged" if certificate.converged else "residual grew" if grew else "fixed count"
        how = "diverged" if certificate.diverged else how
        row = _row(
            "Solver residual", f"{history[0]:.1e} → {history[-1]:.1e}", level, f"{len(history)} iterations, {how}"
        )
        rows.append({**row, "history": _line(history)})
    if certificate.compared:
        inside = sum(each.inside for each in certificate.compared)
        whole = len(certificate.compared)
        rows.append(
            _row("Training range", f"{inside} of {whole}", "good" if inside == whole else "bad", "numbers within it")
        )
    else:
        rows.append(_row("Training range", "unknown", note="not recorded by the network"))
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _line(values: Sequence[float]) -> str:
    """Points of an SVG polyline, 100 wide and 24 high, with a logarithmic scale."""
    logs = torch.tensor(values, dtype=torch.float64).clamp_min(1e-300).log10()
    logs = logs[torch.isfinite(logs)]
    if len(logs) < 2:
        return ""
    span = float(logs.amax() - logs.amin()) or 1.0
    heights = (22 - 20 * (logs - logs.amin()) / span).tolist()
    return " ".join(f"{100 * k / (len(heights) - 1):.1f},{height:.1f}" for k, height in enumerate(heights))


def errors(
    fields: Mapping[str, Tensor], truth: Mapping[str, Tensor], volumes: Float[Tensor, " points"]
) -> list[dict[str, Any]]:
    """Rows about the error of each field against the truth, over all times, which are the last axis of both."""
    rows = []
    for name, target in truth.items():
        prediction, target = fields[name], target.to(fields[name])  # noqa: PLW2901
        share = float(metrics.relative_l2(prediction, target, volumes))
        mean = float(metrics.mean_squared_error(prediction, target, prediction.ndim - 2))
        rows.append(_row(f"Error of {name}", _percent(share), note=f"of its size; mean square {mean:.2e}"))
    return rows


def expected(outcome: Outcome) -> dict[str, Any]:
    """How wrong the prediction probably is: a grade and sentences; nothing where no error can be expected."""
    found = outcome.expected
    if not found.errors:
        if not found.unknown_because:
            return {}
        return {"grade": found.grade, "short": found.in_short, "lines": [f"Not known: {found.unknown_because}"]}
    lines = [f"{name}: {each}" for name, each in found.errors.items()]
    if found.grade != "good":
        lines += [f"Mostly because of {', '.join(found.reasons)}."] if found.reasons else []
        lines += [found.advice]
    return {"grade": found.grade, "short": found.in_short, "lines": lines}


def doubts(outcome: Outcome) -> dict[str, Tensor]:
    """By unknown, the expected error at each point and time, where it is known."""
    found = outcome.expected
    by_time = outcome.expected_by_time or (found,) * len(outcome.times)
    return {
        name: torch.stack([each.local.get(name, values) for each in by_time], dim=-1)
        for name, values in found.local.items()
    }


def durations(seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """Computing times, with their shares of the total."""
    names = {"prepare": "Preparation", "operators": "Operators", "network": "Network", "certificate": "Certificate"}
    whole = seconds.get("altogether", sum(seconds.values())) or 1.0
    return [
        {
            "label": names.get(name, name.capitalize()),
            "value": f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s",
            "share": round(100 * value / whole, 1),
        }
        for name, value in seconds.items()
    ]
