#!/bin/sh
# Runs the Autobahn test suite against this package, as server and as client. The suite is a program in Python 2.7 and takes some minutes.
#
#   websocket/testdata/autobahn.sh [cases]         all of them, or for instance "1.*,7.*,12.1.*"
#
# It wants a python2.7 on the PATH or in $PYTHON27 (with pyenv: pyenv install 2.7.18, PYTHON27=$(pyenv prefix 2.7.18)/bin/python), and
# installs the suite into $AUTOBAHN_HOME (default: autobahn in the user's cache) once. The reports are left there, too.
set -eu
cd "$(dirname "$0")/.."
home=${AUTOBAHN_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/autobahn}
python=${PYTHON27:-python2.7}

if [ ! -x "$home/venv/bin/wstest" ]; then
	"$python" --version
	mkdir -p "$home"
	"$python" -m pip install --quiet --target "$home/virtualenv" "virtualenv<20.22"
	PYTHONPATH="$home/virtualenv" "$python" -m virtualenv --quiet "$home/venv"
	"$home/venv/bin/pip" install --quiet autobahntestsuite==25.10.1
fi

MYRIAD_AUTOBAHN="$home/venv/bin/wstest" MYRIAD_AUTOBAHN_CASES="${1:-}" MYRIAD_AUTOBAHN_REPORTS="$home/reports" \
	go test -count 1 -timeout 180m -run '^TestAutobahn(Server|Client)$' -v . | grep -v '^Running\|^$'
echo "reports: $home/reports/servers/index.html and clients/index.html"
