"""mypyc's front end without the C compiler: `python -m tests.support.mypyc_front FILE ...` fails where mypyc would.

Types and the intermediate code of all modules take nine seconds of a processor; a build takes ten times that.
"""

import os
import sys
from collections.abc import Sequence

from mypyc.build import construct_groups, get_mypy_config
from mypyc.codegen.emitmodule import compile_modules_to_ir, parse_and_typecheck
from mypyc.errors import Errors
from mypyc.ir.rtypes import RTuple, RType
from mypyc.irbuild.mapper import Mapper
from mypyc.options import CompilerOptions

_LOST = "{}: compiled, it raises NameError when it is read; annotate it as Final[tuple[float, ...]]"


def main(files: Sequence[str]) -> int:
    """Compile the files to intermediate code with the options of setup.py; print what mypyc says against them."""
    options = ["--config-file", os.devnull, "--cache-dir", os.devnull, "--ignore-missing-imports"]
    compiling = CompilerOptions()
    sources, _, checking = get_mypy_config([*options, *files], None, compiling, None)
    groups = construct_groups(sources, separate=False, use_shared_lib=True, group_name_override="one")
    checked = parse_and_typecheck(sources, checking, compiling, groups)
    errors = Errors(checking)
    unset = list[str]()
    if not checked.errors:
        names = {source.module: name for group, name in groups for source in group}
        modules = compile_modules_to_ir(checked, Mapper(names), compiling, errors)
        unset = [
            f"{module}.{name}"
            for module, ir in modules.items()
            for name, of in ir.final_names
            if _is_lost(of)
        ]
    said = [*checked.errors, *errors.new_messages(), *(_LOST.format(name) for name in unset)]
    print("\n".join(said))
    return 1 if checked.errors or errors.num_errors or unset else 0


def _is_lost(of: RType) -> bool:
    """Whether a constant of this type is taken for one that was never set: no value of it can say "not set"."""
    return isinstance(of, RTuple) and all(one.error_overlap for one in of.types)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
