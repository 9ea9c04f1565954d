package main

import (
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/debug"
)

// localOrigins are the pages that may use a server in development mode: those that programs of this
// machine serve, which may connect anyway.
var localOrigins = []string{"localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*", `\[::1\]`, `\[::1\]:*`}

// localHost refuses requests for another host than this machine. Else a page of another host whose
// name was made to resolve to this machine (DNS rebinding) would count as the server's own.
func localHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "" && !isLoopback(host) && !isLoopback(trimBrackets(host)) {
			http.Error(w, "without keys, requests must be for localhost or a loopback address, not "+host+": set --api-key and --token-secret", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// withDebug adds the engine's status page, which names peers and so is not for everybody.
func withDebug(next http.Handler, engine *myriad.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/myriad", debug.Handler(engine))
	mux.Handle("/", next)
	return mux
}
