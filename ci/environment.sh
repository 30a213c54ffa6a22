# Sourced by ./verify and ./test: goes to the checkout and makes its .venv, anew when what it is made from has changed.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME

made_from() {
  echo "$PWD ${PYTHON:-} $(cat pyproject.toml constraints.txt | cksum)"
}

if [ "$(cat .venv/made-from 2>/dev/null || true)" != "$(made_from)" ]; then
  source ci/find-python.sh
  echo "Setting up .venv with $("$python" -V): about a minute, once ..." >&2
  "$python" -m venv .venv
  .venv/bin/python -m pip install -qq --constraint constraints.txt --editable ".[verify,megatron]"
  made_from > .venv/made-from
fi
