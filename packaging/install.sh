#!/bin/sh
# Installs ulpscope from this folder into the Python that has your torch; needs no network.
# usage: sh install.sh [PYTHON]     (default: python3)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}

echo "1. asks $python for its torch"
"$python" -c 'import torch; print("   torch", torch.__version__, "in", torch.__path__[0])' || {
    echo "   $python has no torch: name the one that has, e.g. sh install.sh ~/venv/bin/python" >&2
    exit 2
}
echo "2. installs the wheels of $here/wheels into it (pip, --no-index)"
for wheel in "$here"/wheels/*.whl; do
    "$python" -m pip install --no-index --no-deps --force-reinstall -q "$wheel" || {
        case $wheel in
            */ulpscope_glue-*) echo "   $(basename "$wheel") does not fit this machine and is left out" >&2 ;;
            *) exit 2 ;;
        esac
    }
done
echo "3. looks at what this machine lacks (ulpscope doctor)"
"$python" -m ulpscope doctor || true
echo "done; try: $python $here/examples/demo.py"
