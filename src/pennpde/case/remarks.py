"""What the source of a case says and the case cannot hold, so that a prediction can name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """One sentence for the user about something that was left out, replaced or approximated.

    Attributes:
        text: The sentence.
        severe: Whether the predicted fields may be wrong because of it: then it is a warning, otherwise a note.
        other_physics: Whether the equations of the source have terms that are left out. Then its solution is another
            one, and how far away it is cannot be known.
    """

    text: str
    severe: bool = True
    other_physics: bool = False
