"""docs/events.schema.json. `python -m pidgate.events.schema_file` prints it. Pure.

Apart from schema.py, because a module that its package imports cannot be run without a warning.
"""

import json

from pidgate.events.schema import json_schema


def schema_file() -> str:
    """The whole file."""
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(schema_file(), end="")
