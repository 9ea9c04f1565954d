package main

import (
	"fmt"
	"net"
	"strings"
)

// checkExposure decides whether a server may start on the address. On a loopback address, which only programs on this machine
// reach, nothing needs to be set: then it is in development mode. On any other it takes a key and a secret, because a push
// server that anybody can publish to is an open relay.
func checkExposure(listen, apiKey, tokenSecret string) (development bool, err error) {
	host, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port) // "unix:/path" has none
	}
	if err != nil {
		return false, fmt.Errorf("--listen %q: %w: only host:port is supported, as in 127.0.0.1:8000", listen, err)
	}
	if isLoopback(host) {
		return apiKey == "" && tokenSecret == "", nil
	}
	var missing []string
	if apiKey == "" {
		missing = append(missing, "--api-key (MYRIAD_API_KEY), which publishers send in X-API-Key")
	}
	if tokenSecret == "" {
		missing = append(missing, "--token-secret (MYRIAD_TOKEN_SECRET), which signs the tokens of clients")
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("--listen %s can be reached from other machines: set %s; or listen on 127.0.0.1", listen, strings.Join(missing, ", and "))
	}
	return false, nil
}

// isLoopback does not ask a resolver: of names only localhost is known to stay on this machine (RFC 6761 §6.3).
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
