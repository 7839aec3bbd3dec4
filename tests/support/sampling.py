"""How many examples hypothesis draws for a law: some in the default run, more where CI asks for them."""

import os

EXAMPLES = int(os.environ.get("PENN_EXAMPLES", "12"))
