package client

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A hostKey says which requests may share connections.
type hostKey struct {
	scheme string
	addr   string // of the server; empty if a proxy takes requests for all of them
	proxy  string
	onlyH1 bool
}

// keyFor is where a request goes.
func keyFor(r *http.Request, proxy *url.URL, addr string) (hostKey, error) {
	k := hostKey{scheme: r.URL.Scheme, addr: addr, onlyH1: upgrades(r)}
	if proxy == nil {
		return k, nil
	}
	switch proxy.Scheme {
	case "", "http", "https", "socks5", "socks5h": // "" is http
	default:
		return k, &net.OpError{Op: "proxyconnect", Net: "tcp",
			Err: net.UnknownNetworkError("proxy scheme " + proxy.Scheme + ": use http, https, socks5 or socks5h")}
	}
	k.proxy = proxy.String()
	if k.scheme == "http" && !socks(proxy) {
		k.addr = ""
	}
	return k, nil
}

func socks(proxy *url.URL) bool { return strings.HasPrefix(proxy.Scheme, "socks5") }

// canonicalAddr is the URL's host in ASCII, with its port or the scheme's.
func canonicalAddr(u *url.URL) string {
	port := u.Port()
	if port == "" {
		switch u.Scheme {
		case "", "http":
			port = "80"
		case "https":
			port = "443"
		case "socks5", "socks5h":
			port = "1080"
		}
	}
	host := u.Hostname()
	if ascii, err := httpguts.PunycodeHostPort(host); err == nil {
		host = ascii
	}
	return net.JoinHostPort(host, port)
}

// upgrades reports whether the request asks for another protocol.
func upgrades(r *http.Request) bool {
	for _, v := range r.Header["Connection"] {
		for option := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") && len(r.Header["Upgrade"]) > 0 {
				return true
			}
		}
	}
	return false
}
