package websocket

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/myriad-go/myriad"
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
	case proxy.Scheme != "http" || proxy.Hostname() == "":
		return nil, fmt.Errorf("DialOptions.Proxy gave %s: %w (use http://host:port)", proxy.Redacted(),
			myriad.ErrUnsupported)
	}
	return proxy, nil
}

// hostPort is a URL's host with its port, or the scheme's.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"wss": "443", "https": "443"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// A tunnel is the handler of a connection to a proxy until that has connected it to the server, RFC
// 9110 §9.3.6. Its methods run on the loop.
type tunnel struct {
	greeting *greeting
	next     myriad.Handler // speaks when the tunnel stands: the greeting, or TLS before it
	request  []byte
	answer   responseReader
}

func newTunnel(g *greeting, next myriad.Handler, proxy *url.URL, target string) *tunnel {
	p := fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		p = fmt.Appendf(p, "Proxy-Authorization: Basic %s\r\n",
			base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	return &tunnel{greeting: g, next: next, request: append(p, "\r\n"...)}
}

func (t *tunnel) Opened(c *myriad.Conn) {
	c.SetTimer(t.greeting.settings.handshakeTimeout)
	if _, err := c.Write(t.request); err != nil {
		c.Abort(err)
	}
}

func (t *tunnel) Received(c *myriad.Conn, p []byte) {
	response, rest, err := t.answer.add(p)
	switch {
	case err != nil:
		t.greeting.fail(c, fmt.Errorf("the proxy's answer: %w", err))
	case response == nil:
	case response.StatusCode < 200 || response.StatusCode > 299:
		t.greeting.fail(c, fmt.Errorf("the proxy answered %s", response.Status))
	case len(rest) > 0:
		t.greeting.fail(c, errors.New("the proxy sent something behind its response, before we had said anything"))
	default:
		c.SetHandler(t.next, nil)
	}
}

func (t *tunnel) Ended(c *myriad.Conn) {
	t.greeting.fail(c, fmt.Errorf("the proxy ended the connection without a response: %w", io.ErrUnexpectedEOF))
}

func (t *tunnel) Expired(c *myriad.Conn) {
	t.greeting.finish(fmt.Errorf("no response of the proxy in time: %w", os.ErrDeadlineExceeded))
	c.Abort(nil)
}

func (t *tunnel) Closed(c *myriad.Conn, err error) { t.greeting.Closed(c, err) }
