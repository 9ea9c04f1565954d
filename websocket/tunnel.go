package websocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/tunnel"
)

// proxyFor asks DialOptions.Proxy, which knows of http and https as http.ProxyFromEnvironment does.
func (o *DialOptions) proxyFor(ctx context.Context, target *url.URL) (*url.URL, error) {
	if o.Proxy == nil {
		return nil, nil
	}
	asked := *target
	asked.Scheme = "http"
	if target.Scheme == "wss" {
		asked.Scheme = "https"
	}
	r := (&http.Request{Method: http.MethodGet, URL: &asked, Host: asked.Host, Header: http.Header{}}).WithContext(ctx)
	proxy, err := o.Proxy(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("DialOptions.Proxy: %w", err)
	case proxy == nil:
		return nil, nil
	}
	switch proxy.Scheme {
	case "http", "https", "socks5", "socks5h":
		if proxy.Hostname() != "" {
			return proxy, nil
		}
	}
	return nil, fmt.Errorf("DialOptions.Proxy gave %s: %w (use http, https, socks5 or socks5h, as in http://host:port)",
		proxy.Redacted(), myriad.ErrUnsupported)
}

// hostPort is a URL's host with its port, or the scheme's.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"wss": "443", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// through is the handler of a connection to a proxy until that has connected it to the server. Then
// next speaks for g.
func (o *DialOptions) through(e *myriad.Engine, g *greeting, next myriad.Handler, proxy, target *url.URL) (
	myriad.Handler, error) {
	d := &tunnel.Dial{Proxy: proxy, Target: hostPort(target), Next: next, Timeout: g.settings.handshakeTimeout,
		Limits: h1.Limits{HeadBytes: maxResponse, LineBytes: maxResponse}, Failed: g.proxyFailed, Over: g.done.Load}
	if strings.HasPrefix(proxy.Scheme, "socks5") {
		return tunnel.Socks(d)
	}
	if proxy.Scheme == "https" && target.Scheme == "wss" {
		inner := *d
		d.Next = tunnel.Nested(e, &inner, func(_ *myriad.Conn, err error) {
			if err != nil {
				g.finish(err)
			}
		})
	}
	h := tunnel.Connect(d, connectRequest(proxy, d.Target), judge)
	if proxy.Scheme == "https" {
		h = o.secure(g, h, proxy, g.proxyFailed)
	}
	return h, nil
}

// proxyFailed ends the handshake because there is no way to the server.
func (g *greeting) proxyFailed(err error) {
	if _, is := errors.AsType[*h1.Error](err); is {
		err = wordsOf(err)
	}
	g.finish(fmt.Errorf("the proxy: %w", err))
}

func connectRequest(proxy *url.URL, target string) []byte {
	p := fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if u := proxy.User; u != nil {
		p = fmt.Appendf(p, "Proxy-Authorization: %s\r\n", tunnel.BasicAuth(u))
	}
	return append(p, "\r\n"...)
}

// judge is RFC 9110 §9.3.6: any 2xx connects.
func judge(head *h1.ResponseHead) error {
	if head.Status/100 == 2 {
		return nil
	}
	return fmt.Errorf("it answered %d %s", head.Status, head.Reason)
}
