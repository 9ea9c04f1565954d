package main

import (
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/debug"
)

// localOrigins are the origins whose pages may use a server in development mode: pages served by
// programs on this machine, which may connect anyway.
var localOrigins = []string{"localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*", `\[::1\]`, `\[::1\]:*`}

// localHost refuses requests whose Host is not this machine. This prevents DNS rebinding: a foreign
// page whose host name resolves to this machine would otherwise count as the server's own.
func localHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "" && !isLoopback(host) && !isLoopback(trimBrackets(host)) {
			http.Error(w, "without keys, requests must be for localhost or a loopback address, not "+host+": set "+
				"--api-key and --token-secret", http.StatusForbidden)
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

// withDebug adds the engine's status page, which shows peers' addresses and is for development
// only.
func withDebug(next http.Handler, engine *myriad.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/myriad", debug.Handler(engine))
	mux.Handle("/", next)
	return mux
}
