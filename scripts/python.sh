#!/usr/bin/env bash
# The lab in Python: builds the wheel, installs it in a clean environment, and tries it as a user would.
#
# VELLUM names the command, which must give the same figures (without it that test is skipped with a message). PROFILE=dev builds faster and
# runs slower.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh python
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/python
wheels=$target/wheels
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

python() { "$fresh/venv/bin/python" "$@"; }
# Wheels only: a package without a wheel for this Python fails with a message, instead of building for minutes.
install() { "$1/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "${@:2}"; }

[ -x "$tools/bin/maturin" ] || {
    python3 -m venv --clear "$tools"
    install "$tools" 'maturin>=1.9.4,<2'
}
rm -rf "$wheels"
"$tools/bin/maturin" build --locked --manifest-path py/Cargo.toml --profile "${PROFILE:-release}" --target-dir "$target" --out "$wheels"

python3 -m venv "$fresh/venv"
install "$fresh/venv" "$wheels"/vellum-*.whl matplotlib
echo '-- a figure in five lines'
[ "$(grep -cvE '^"""|^$' py/examples/figure.py)" -eq 5 ]
(cd "$fresh" && MPLBACKEND=agg venv/bin/python "$OLDPWD/py/examples/figure.py")
[ "$(head -c 4 "$fresh/figure.png" | tail -c 3)" = PNG ]

install "$fresh/venv" "$(echo "$wheels"/vellum-*.whl)[dask]" pytest pandas pyarrow tqdm mypy nbclient ipykernel
echo '-- tests'
python -m pytest -q -p no:cacheprovider py/tests
echo '-- types'
(cd py && python -m mypy --cache-dir "$fresh/mypy" --ignore-missing-imports python/vellum)
for notebook in py/examples/*.ipynb; do
    echo "-- $notebook"
    (cd "$fresh" && venv/bin/jupyter-execute --output "$fresh/$(basename "$notebook")" "$OLDPWD/$notebook")
done
