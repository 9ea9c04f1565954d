// Package clients holds no code, only tests: they run the real server binary and let the real
// client libraries, unmodified, and a real browser, talk to it. Install these with
//
//	npm ci --prefix server/clients
//	python3 -m venv server/clients/.venv && server/clients/.venv/bin/pip install -r server/clients/requirements.txt
//	apt-get install chromium chromium-driver
//
// The go command fetches gocent, which is a module of its own in testdata/gocent.
//
// A test whose client is not installed is skipped by its name, and fails when
// MYRIAD_REQUIRE_CLIENTS=1. With MYRIAD_SCREENSHOTS=dir the browser leaves pictures of the console
// there.
package clients
