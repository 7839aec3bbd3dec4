"""What was measured on: times mean nothing without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, how many of them this process may use, and the system."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": _cpu(), "processors": allowed, "system": f"{platform.system()} {platform.machine()}"}


def load() -> float | None:
    """Load average of the last minute, if the system provides it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
