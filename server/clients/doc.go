// Package clients contains only tests. They run the real server binary with unmodified client
// libraries and a real browser. Install these with
//
//	npm ci --prefix server/clients
//	python3 -m venv server/clients/.venv && server/clients/.venv/bin/pip install -r server/clients/requirements.txt
//	apt-get install chromium chromium-driver
//
// The go command fetches gocent and centrifuge-go for the modules in testdata/gocent and
// testdata/centrifugego.
//
// If a client is not installed, its test is skipped; with MYRIAD_REQUIRE_CLIENTS=1 it fails. With
// MYRIAD_SCREENSHOTS=dir the browser saves pictures of the console there.
package clients
