"""SIGTERM means: finish what you do, then end."""

import signal


class StopAsked:
    """True from SIGTERM on. Make it in the main thread."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def __bool__(self) -> bool:
        return self._asked

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True
