package main

import (
	"crypto/tls"
	"net/http"

	"github.com/myriad-go/myriad/client"
)

// standard returns an *http.Transport whose requests t carries, for a library that takes no
// http.RoundTripper. Its own fields have no effect: set those of t. A Clone of it does not use t.
func standard(t *client.Transport) *http.Transport {
	s := &http.Transport{
		// else it makes an HTTP/2 client of its own for https
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	s.RegisterProtocol("http", t)
	s.RegisterProtocol("https", t)
	return s
}
