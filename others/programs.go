package main

// A program has tests of its own, which are run twice.
type program struct {
	name          string
	path, version string // its module; no path: the Go release at hand
	// sum is the hash of the module, as go.sum writes it, for a module that the checksum database
	// does not know. Empty: the database knows it.
	sum string
	// packages are patterns. Nil: all of the module. Left out are those whose tests do not link
	// net/http, and those whose import path matches without.
	packages []string
	without  string
	tags     string
	args     []string // of the test binaries
	env      []string
	tests    string // those that are run, as go test -run has it, if the others do not speak HTTP
	skip     string // tests that are not run on either side, as go test -skip has it; the comment says why
	// cuts divide the tests into units, for shares: those that match the first pattern, those of
	// the others that match the second, and so on; the last unit has the rest.
	cuts []string
	// files are added to the module: what its own build would make.
	files  map[string]string
	checks *checker // for goroutines, in its tests
	// realTime has the tests that run in a bubble of testing/synctest run in real time on ours,
	// because event loops do not run in a bubble. Without it these tests stay on net/http.
	realTime bool
	// seconds is what one unit takes on two cores with a warm build cache. Shares are made by it.
	seconds int
}

// programs are in the order of the table that is printed.
var programs = []program{
	{
		name: "net/http", packages: []string{"net/http"}, seconds: 90, realTime: true,
		// These run the go command, or build programs.
		skip: "^TestCmdGoNoHTTPServer$|^TestOmitHTTP2",
	},
	{name: "net/http/httptest", packages: []string{"net/http/httptest"}},
	{name: "net/http/httputil", packages: []string{"net/http/httputil"}},
	{name: "net/http/cookiejar", packages: []string{"net/http/cookiejar"}},
	{name: "net/http/pprof", packages: []string{"net/http/pprof"}},
	{name: "net/rpc", packages: []string{"net/rpc", "net/rpc/jsonrpc"}},
	{name: "expvar", packages: []string{"expvar"}},
	{
		name: "grpc-go", path: "google.golang.org/grpc", version: "v1.85.0", packages: []string{"./test"},
		args: []string{"only_env=handler-tls"}, seconds: 120,
	},
	{name: "connect-go", path: "connectrpc.com/connect", version: "v1.21.1", seconds: 90},
	{name: "gin", path: "github.com/gin-gonic/gin", version: "v1.12.0"},
	{name: "echo", path: "github.com/labstack/echo/v4", version: "v4.16.0"},
	{name: "chi", path: "github.com/go-chi/chi/v5", version: "v5.5.0"},
	{name: "gorilla/mux", path: "github.com/gorilla/mux", version: "v1.8.1"},
	{name: "gorilla/handlers", path: "github.com/gorilla/handlers", version: "v1.5.2"},
	{name: "gorilla/websocket", path: "github.com/gorilla/websocket", version: "v1.5.3"},
	{name: "coder/websocket", path: "github.com/coder/websocket", version: "v1.8.15"},
	{name: "go-httpbin", path: "github.com/mccutchen/go-httpbin/v2", version: "v2.26.0"},
	{name: "oxy", path: "github.com/vulcand/oxy/v2", version: "v2.0.3"},
	{name: "resty", path: "github.com/go-resty/resty/v2", version: "v2.17.2"},
	{name: "go-retryablehttp", path: "github.com/hashicorp/go-retryablehttp", version: "v0.7.8"},
	{name: "go-sse", path: "github.com/tmaxmax/go-sse", version: "v0.12.0"},
	{name: "r3labs/sse", path: "github.com/r3labs/sse/v2", version: "v2.10.0"},
	{name: "melody", path: "github.com/olahol/melody", version: "v1.1.4"},
	{
		name: "client_golang", path: "github.com/prometheus/client_golang", version: "v1.25.0",
		packages: []string{"./prometheus/promhttp", "./prometheus/push", "./api/..."},
	},
	{
		name: "gotify", path: "github.com/gotify/server/v2", version: "v2.7.3",
		sum:      "h1:nro/ZnxdlZFvxFcw9LREGA8zdk6CK744azwhuhX/A4g=",
		packages: []string{"./api/stream", "./router"},
		files:    map[string]string{"ui/build/index.html": "%CONFIG%", "ui/build/manifest.json": "{}"},
	},
	{
		name: "x/net", path: "golang.org/x/net", version: "v0.62.0",
		packages: []string{"./http2", "./http2/h2c", "./websocket", "./webdav"},
	},
	{name: "x/crypto/acme", path: "golang.org/x/crypto", version: "v0.59.0", packages: []string{"./acme/..."}},
	{name: "x/oauth2", path: "golang.org/x/oauth2", version: "v0.38.0"},
	{name: "goproxy", path: "github.com/elazarl/goproxy", version: "v1.9.3"},
	{
		name: "centrifuge", path: "github.com/centrifugal/centrifuge", version: "v0.40.1", packages: []string{"."},
		tests: "^Test(Check|Emulation|HTTPStream|Process|SSE|Streaming|Ws|Websocket)",
	},
	{name: "go-github", path: "github.com/google/go-github/v75", version: "v75.0.0", packages: []string{"./github"}},
	{
		name: "go-containerregistry", path: "github.com/google/go-containerregistry", version: "v0.22.1",
		packages: []string{"./pkg/v1/remote/...", "./pkg/registry/...", "./pkg/crane/..."},
	},
	{name: "go-openai", path: "github.com/sashabaranov/go-openai", version: "v1.43.0"},
	{
		name: "prometheus/common", path: "github.com/prometheus/common", version: "v0.73.1",
		packages: []string{"./config", "./server", "./route"},
	},
	{name: "gzhttp", path: "github.com/klauspost/compress", version: "v1.20.4", packages: []string{"./gzhttp/..."}},
	{
		name: "cmux", path: "github.com/soheilhy/cmux", version: "v0.1.5",
		checks: &checker{
			file:   "cmux_test.go",
			anchor: "\t\tif strings.HasPrefix(stack, \"testing.RunTests\") {\n\t\t\tcontinue\n\t\t}\n",
			stack:  "stack", ignore: "stack = \"\"",
		},
	},
	{name: "go-proxyproto", path: "github.com/pires/go-proxyproto", version: "v0.13.0"},
	{
		name: "gqlgen", path: "github.com/99designs/gqlgen", version: "v0.17.98",
		packages: []string{"./graphql/handler/...", "./client/..."},
	},
	{
		name: "mcp-go", path: "github.com/mark3labs/mcp-go", version: "v1.2.1",
		packages: []string{"./server"},
	},
	{
		name: "mcp go-sdk", path: "github.com/modelcontextprotocol/go-sdk", version: "v1.8.0",
		packages: []string{"./mcp", "./auth/..."},
	},
	{
		name: "k8s apimachinery", path: "k8s.io/apimachinery", version: "v0.37.2",
		packages: []string{"./pkg/util/httpstream/...", "./pkg/util/proxy/...", "./pkg/util/net/..."},
	},
	{
		name: "k8s client-go", path: "k8s.io/client-go", version: "v0.37.2",
		packages: []string{"./rest/...", "./transport/...", "./tools/remotecommand/...", "./tools/portforward/..."},
	},
	{name: "martian", path: "github.com/google/martian/v3", version: "v3.3.3"},
	{name: "scs", path: "github.com/alexedwards/scs/v2", version: "v2.9.0"},
	{name: "otelhttp", path: "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp", version: "v0.72.0"},
	{name: "cloudevents", path: "github.com/cloudevents/sdk-go/v2", version: "v2.16.2"},
	{
		name: "sentry-go", path: "github.com/getsentry/sentry-go", version: "v0.50.0",
		packages: []string{".", "./http", "./httpclient", "./internal/http"},
	},
	{
		name: "slack-go", path: "github.com/slack-go/slack", version: "v0.35.0",
		packages: []string{".", "./slacktest", "./socketmode"},
	},
}
