# Sourced: sets `python` to an interpreter that is 3.11 or later and can make virtual environments, or ends the script.
# PYTHON names the one to use; without it the first that will do of python3, python3.13, python3.12, python3.11.
candidates=(python3 python3.13 python3.12 python3.11)
if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
python=
for candidate in "${candidates[@]}"; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "No Python 3.11 or later with venv and ensurepip among: ${candidates[*]}. Name one with PYTHON=/path/to/python." >&2
  exit 2
fi
