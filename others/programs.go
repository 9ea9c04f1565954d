package main

// A program has tests that are run twice.
type program struct {
	name          string
	path, version string   // its module; no path: the Go release at hand
	packages      []string // patterns, "./..." by default; those whose tests do not link net/http are left out
	without       string   // a pattern of import paths that are left out
	args          []string // of its test binaries
	env           []string
	skip          string // a pattern of tests that are left out on both sides, as go test -skip has it
	parts         int    // into how many shares its largest package is cut; 0: one
}

// programs are run in this order.
var programs = []program{
	{name: "net/http", packages: []string{"net/http"}, skip: "^TestCmdGoNoHTTPServer$|^TestOmitHTTP2"},
	{name: "httptest", packages: []string{"net/http/httptest"}},
	{name: "httputil", packages: []string{"net/http/httputil"}},
	{name: "cookiejar", packages: []string{"net/http/cookiejar"}},
	{name: "pprof", packages: []string{"net/http/pprof"}},
	{name: "rpc", packages: []string{"net/rpc", "net/rpc/jsonrpc"}},
	{name: "expvar", packages: []string{"expvar"}},
	{
		name: "grpc-go", path: "google.golang.org/grpc", version: "v1.85.0", packages: []string{"./test"},
		args: []string{"-only_env=handler-tls"},
	},
	{name: "connect-go", path: "connectrpc.com/connect", version: "v1.19.1"},
	{name: "gin", path: "github.com/gin-gonic/gin", version: "v1.12.0"},
}
