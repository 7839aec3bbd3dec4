"""Draw the figures of docs/figures.md from committed records and weights.

python docs/figures.py [NUMBER ...]

Each is a picture of `penn report --pictures`, brought to a palette of colours and to the width of a page. Networks take
part once their weights are there: rows without weights are left out, and the command says which.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from pennlab.charts import with_palette

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images" / "figures"
MOST_PIXELS, SERIES_PIXELS = 1600, 1300
"""Of the width: of comparisons, and of series in time."""
FIGURES: Mapping[int, str] = {
    2: "gradient/isogcn_of_the_paper/1.json gradient/nisogcn/1.json gradient/corrected/0.json",
    3: "flow/penn/0.json flow/penn/0.moved.json flow/n16_r4 flow/mp_pde_20_128 --case a_0.90",
    12: "flow/penn/0.json flow/C/0.json flow/G/0.json flow/A/0.json --case b_0.80_0.70",
    16: "advection_diffusion/penn/0.json --case u0.90_d0.00_t0.50",
    17: "advection_diffusion/penn/0.json --case u0.00_d0.40_t0.20",
    18: "advection_diffusion/penn/0.json --case u0.60_d0.30_t0.50",
}
"""By the paper's number, the records that `penn report` is given, and the case; figure 2: that of median error."""


def main(numbers: Sequence[str]) -> None:
    for number in map(int, numbers or map(str, FIGURES)):
        with tempfile.TemporaryDirectory() as folder:
            records, _, case = FIGURES[number].partition(" --case ")
            command = [sys.executable, "-m", "pennpde", "report", *(f"lab/records/{each}" for each in records.split())]
            command += [*(["--case", case] if case else []), "--pictures", folder]
            subprocess.run(command, cwd=ROOT, check=True)
            (path,) = Path(folder).glob("*.png")
            store(path, IMAGES / f"figure_{number:02}.png", SERIES_PIXELS if number >= 16 else MOST_PIXELS)


def store(path: Path, target: Path, width: int) -> None:
    """A third of the bytes: the width of a page, a palette of colours."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(path) as picture:
        scale = min(1.0, width / picture.width)
        size = (round(picture.width * scale), round(picture.height * scale))
        content = io.BytesIO()
        picture.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(content, format="PNG")
    target.write_bytes(with_palette(content.getvalue()))


if __name__ == "__main__":
    main(sys.argv[1:])
