"""Entry point of the container action: everything is in the package `therock_outputs`."""

import sys

try:
    from therock_outputs.main import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "therock_outputs":
        raise
    sys.stderr.write("therock_outputs is not installed here: run `python3 -m pip install .` in this project\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main())
