package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// errorsOf gives the error of one request by each Transport, with its type and those that it wraps.
// Addresses of the network have no port in it.
func errorsOf(t *testing.T, std *http.Transport, url string) (theirs, own string) {
	t.Helper()
	defer std.CloseIdleConnections()
	show := func(rt http.RoundTripper) (text string) {
		r, err := rt.RoundTrip(request(t, "GET", url, nil))
		if err == nil {
			r.Body.Close()
			return "status " + r.Status
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			text += fmt.Sprintf("%T ", e)
		}
		return port.ReplaceAllString(text+err.Error(), "127.0.0.1:PORT")
	}
	return show(std), show(likeOf(t, std))
}

var port = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// What goes wrong with a proxy, and behind it, is the error that http.Transport has: only a
// connection to the proxy that fails is an error of "proxyconnect".
func TestProxyErrorsLikeNetHTTP(t *testing.T) {
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	secure := quiet(httptest.NewUnstartedServer(http.HandlerFunc(ok)))
	tunnels := serveHTTP(t, forward)
	overTLS := quiet(httptest.NewUnstartedServer(http.HandlerFunc(forward)))
	answers := func(text string) string {
		return scripted(t, func(c net.Conn, r *bufio.Reader) {
			readHead(r)
			io.WriteString(c, text)
		})
	}
	mine := errors.New("mine")
	const plain, toTLS = "http://origin.example/", "https://origin.example/"
	closed := "http://127.0.0.1:1"
	allowed := strings.Replace(tunnels.URL, "http://", "http://me:secret@", 1)
	noScheme := strings.TrimPrefix(answers("HTTP/1.1 204 No Content\r\n\r\n"), "http:")
	for name, tt := range map[string]struct {
		proxy, url string
		change     func(tr *http.Transport)
		differs    bool
	}{
		"refuses the connection":           {proxy: closed, url: plain},
		"refuses the connection for TLS":   {proxy: closed, url: toTLS},
		"DialContext fails":                {proxy: closed, url: toTLS, change: failingDial},
		"407":                              {proxy: answers("HTTP/1.1 407 Who are you\r\n\r\n"), url: toTLS},
		"502":                              {proxy: answers("HTTP/1.1 502 Bad Gateway\r\n\r\n"), url: toTLS},
		"201":                              {proxy: answers("HTTP/1.1 201 Created\r\n\r\n"), url: toTLS},
		"no reason":                        {proxy: answers("HTTP/1.1 503\r\n\r\n"), url: toTLS},
		"FIN":                              {proxy: answers(""), url: toTLS},
		"FIN in the head":                  {proxy: answers("HTTP/1.1 200 OK\r\nX: "), url: toTLS},
		"no HTTP":                          {proxy: answers("SSH-2.0\r\n"), url: toTLS, differs: true},
		"certificate of the proxy":         {proxy: overTLS.URL, url: plain},
		"certificate of the proxy for TLS": {proxy: overTLS.URL, url: toTLS},
		"certificate of the server":        {proxy: allowed, url: secure.URL},
		"HTTP behind CONNECT":              {proxy: allowed, url: strings.Replace(tunnels.URL, "http", "https", 1)},
		"no scheme":                        {proxy: noScheme, url: plain},
		"scheme of no proxy":               {proxy: "ftp://127.0.0.1:1", url: plain, differs: true},
		"100 before the answer": {proxy: answers("HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 403 No\r\n\r\n"), url: toTLS,
			differs: true},
		"GetProxyConnectHeader": {proxy: closed, url: toTLS, differs: true, change: func(tr *http.Transport) {
			tr.GetProxyConnectHeader = func(context.Context, *url.URL, string) (http.Header, error) { return nil, mine }
		}},
		"Proxy": {url: plain, change: func(tr *http.Transport) {
			tr.Proxy = func(*http.Request) (*url.URL, error) { return nil, mine }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			std := &http.Transport{}
			if tt.proxy != "" {
				std.Proxy = proxied(t, tt.proxy)
			}
			if tt.change != nil {
				tt.change(std)
			}
			if theirs, own := errorsOf(t, std, tt.url); (theirs != own) != tt.differs {
				t.Errorf("they differ: %v, want %v\nhttp.Transport: %s\n     Transport: %s", theirs != own, tt.differs,
					theirs, own)
			}
		})
	}
}

func failingDial(tr *http.Transport) {
	tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") }
}

// An error of a SOCKS5 proxy has the form of net/http's, and says more.
func TestSOCKSErrors(t *testing.T) {
	for name, answers := range map[string][]string{
		"no method": {"\x05\xff"}, "another version": {"\x04\x00"}, "a method that was not offered": {"\x05\x02"},
		"FIN": {}, "refused": {"\x05\x00", "\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"},
		"FIN in an answer": {"\x05\x00", "\x05\x00"},
	} {
		proxy := scripted(t, func(c net.Conn, r *bufio.Reader) {
			for _, a := range answers {
				r.Read(make([]byte, 512))
				io.WriteString(c, a)
			}
		})
		std := &http.Transport{Proxy: proxied(t, strings.Replace(proxy, "http", "socks5", 1))}
		defer std.CloseIdleConnections()
		for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
			_, err := rt.RoundTrip(request(t, "GET", "http://origin.example/", nil))
			e, is := err.(*net.OpError) //nolint:errorlint // its type is meant
			if !is || e.Op != "socks connect" || e.Net != "tcp" || "http://"+e.Source.String() != proxy ||
				e.Addr.String() != "origin.example:80" {
				t.Errorf("%s, %s: %#v", name, of, err)
			}
		}
	}
}

// An address that cannot be dialled is an error of package net, as in net/http.
func TestAddressErrorsLikeNetHTTP(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:99999/", "http://127.0.0.1:1/", "http://no.such.name.invalid/"} {
		if theirs, own := errorsOf(t, &http.Transport{}, url); theirs != own {
			t.Errorf("%s\nhttp.Transport: %s\n     Transport: %s", url, theirs, own)
		}
	}
}
