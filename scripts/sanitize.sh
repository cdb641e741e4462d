#!/usr/bin/env bash
# Kernel tests under AddressSanitizer and UndefinedBehaviorSanitizer.
#
# Builds the extension with both sanitizers beside the normal one, then runs the tests with a copy of
# the package that holds it. Python itself isn't instrumented, so the runtime is preloaded and leaks
# (Python's own) are not looked for. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python}
build=build/sanitize
overlay=$build/package

cmake -S . -B "$build" -DSLIPSTREAM_SANITIZE=ON -DPython_EXECUTABLE="$(command -v "$python")"
cmake --build "$build" --parallel

rm -rf "$overlay"
mkdir -p "$overlay"
cp -r src/slipstream "$overlay/"
rm -f "$overlay"/slipstream/kernels/_native*
cp "$build"/_native* "$overlay/slipstream/kernels/"

compiler=${CXX:-c++}
preload=$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libstdc++.so)
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
export PYTHONPATH=$PWD/$overlay${PYTHONPATH:+:$PYTHONPATH}
# An editable install redirects imports before PYTHONPATH is asked; the overlay has to come first.
overlay_first='import sys
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildRedirectingFinder"]
import slipstream.kernels
assert sys.argv[1] in slipstream.kernels.native().__file__, slipstream.kernels.native().__file__
import pytest
sys.exit(pytest.main(sys.argv[2:]))'
LD_PRELOAD=$preload "$python" -c "$overlay_first" "$overlay" -q -p no:cacheprovider tests/kernels \
  tests/models/test_native.py tests/models/test_native_fuzz.py "$@"
