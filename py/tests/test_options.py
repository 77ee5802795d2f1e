"""The options that Python's type checkers know are those that there are. UPDATE=1 writes them anew."""

import os
from pathlib import Path

from vellum.words import OPTIONS

# Said by parameters of their own.
OWN = {"workload", "device"}
FILE = Path(__file__).parent.parent / "python" / "vellum" / "options.py"


def written() -> str:
    options = [told for told in OPTIONS if told[0] not in OWN]
    about = "".join(f"    {name}: {' '.join(text.split())}\n" for name, _, text in options)
    types = "".join(f"    {name}: {'Value' if takes else 'bool'} | None\n" for name, takes, _ in options)
    return (
        '"""The options of a run. Made from the lab\'s own by tests/test_options.py: UPDATE=1 writes it anew."""\n\n'
        "from typing import TypedDict\n\n"
        "Value = str | int | float\n\n\n"
        "class Options(TypedDict, total=False):\n"
        '    r"""The options of a run, as `vellum lab run` has them. Sizes are numbers of bytes or like "10G".\n\n'
        f'{about}    """\n\n{types}'
    )


def test_they_are_those_of_the_lab() -> None:
    if os.environ.get("UPDATE"):
        FILE.write_text(written())
    assert FILE.read_text() == written(), "run it again with UPDATE=1"
