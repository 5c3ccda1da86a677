"""mypyc's front end without the C compiler: `python -m tests.support.mypyc_front FILE ...` fails where mypyc would.

Types and the intermediate code of all modules take nine seconds of a processor; a build takes ten times that.
"""

import os
import sys
from collections.abc import Sequence

from mypyc.build import construct_groups, get_mypy_config
from mypyc.codegen.emitmodule import compile_modules_to_ir, parse_and_typecheck
from mypyc.errors import Errors
from mypyc.irbuild.mapper import Mapper
from mypyc.options import CompilerOptions


def main(files: Sequence[str]) -> int:
    """Compile the files to intermediate code with the options of setup.py; print what mypyc says against them."""
    options = ["--config-file", os.devnull, "--cache-dir", os.devnull, "--ignore-missing-imports"]
    compiling = CompilerOptions()
    sources, _, checking = get_mypy_config([*options, *files], None, compiling, None)
    groups = construct_groups(sources, separate=False, use_shared_lib=True, group_name_override="one")
    checked = parse_and_typecheck(sources, checking, compiling, groups)
    errors = Errors(checking)
    if not checked.errors:
        names = {source.module: name for group, name in groups for source in group}
        compile_modules_to_ir(checked, Mapper(names), compiling, errors)
    print("\n".join([*checked.errors, *errors.new_messages()]))
    return 1 if checked.errors or errors.num_errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
