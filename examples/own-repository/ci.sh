#!/bin/sh
# What CI runs: the repository's own tests, whether the suites are those of today, and the run that the lock judges.
# Arguments narrow the last two, for example: ./ci.sh --model bert --device cpu
set -eu
cd "$(dirname "$0")"
HWCOMPAT_HOME=${HWCOMPAT_HOME:-$(cd ../.. && pwd)} # a checkout of the product
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$HWCOMPAT_HOME${PYTHONPATH:+:$PYTHONPATH}"

"$PYTHON" -m pytest -q --ignore=tests/hwcompat
"$PYTHON" "$HWCOMPAT_HOME/run_test_generation.py" --config hwcompat.toml --check tests/hwcompat "$@"
"$PYTHON" "$HWCOMPAT_HOME/run_test_generation.py" --config hwcompat.toml --run "$@" \
    --output-dir tests/hwcompat --evidence build/hwcompat/evidence --report-dir build/hwcompat/reports
