package client

import (
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
)

// A tunnel is the handler of a connection to a proxy until that has connected it to the server (RFC
// 9110 section 9.3.6). Its methods run on the loop.
type tunnel struct {
	dial    *dialing
	next    myriad.Handler // speaks when the tunnel stands
	asked   *http.Request
	request []byte
	kept    []byte
	scan    h1.Scan
	dead    bool
}

func newTunnel(d *dialing, next myriad.Handler) (*tunnel, error) {
	header := d.t.ProxyConnectHeader
	if d.t.GetProxyConnectHeader != nil {
		var err error
		if header, err = d.t.GetProxyConnectHeader(d.ctx, d.proxy, d.addr); err != nil {
			return nil, err
		}
	}
	if err := checkFields("proxy header", header); err != nil {
		return nil, err
	}
	if header = header.Clone(); header == nil {
		header = http.Header{}
	}
	if u := d.proxy.User; u != nil {
		header.Set("Proxy-Authorization", basicAuth(u))
	}
	r := &http.Request{Method: "CONNECT", URL: &url.URL{Opaque: d.addr}, Host: d.addr, Header: header}
	p := h1.AppendRequestLine(nil, "CONNECT", d.addr)
	host := d.addr
	if h := header.Get("Host"); h != "" {
		host = h
	}
	p = h1.AppendField(p, "Host", host)
	if _, set := header["User-Agent"]; !set {
		p = h1.AppendField(p, "User-Agent", userAgent)
	} else if agent := header.Get("User-Agent"); agent != "" {
		p = h1.AppendField(p, "User-Agent", agent)
	}
	p = appendFields(p, header, &Call{})
	return &tunnel{dial: d, next: next, asked: r, request: append(p, "\r\n"...)}, nil
}

func (t *tunnel) Opened(c *myriad.Conn) {
	if t.dial.over.Load() { // a failed handshake with the proxy, or a dial that was given up
		t.dead = true
		c.Abort(nil)
		return
	}
	c.SetTimer(proxyTimeout)
	if _, err := c.Write(t.request); err != nil {
		t.fail(c, err)
	}
}

func (t *tunnel) Received(c *myriad.Conn, p []byte) {
	if t.dead {
		return
	}
	t.kept = append(t.kept, p...)
	limits := t.dial.t.limits(0)
	ready, err := t.scan.Response(t.kept, limits)
	if err != nil || !ready {
		if err != nil {
			t.fail(c, err)
		}
		return
	}
	var head h1.ResponseHead
	n, err := h1.ParseResponse(t.kept, limits, &head)
	if err != nil {
		t.fail(c, err)
		return
	}
	r := newResponse(&Call{req: t.asked, original: t.asked}, &head)
	rest := t.kept[n:]
	if head.Status < 200 && head.Status != http.StatusSwitchingProtocols {
		t.kept, t.scan = append([]byte(nil), rest...), h1.Scan{}
		if len(rest) > 0 {
			t.Received(c, nil)
		}
		return
	}
	r.Body = http.NoBody
	if f := t.dial.t.OnProxyConnectResponse; f != nil {
		if err = f(t.dial.ctx, t.dial.proxy, t.asked, r); err != nil {
			t.fail(c, err)
			return
		}
	}
	t.answered(c, r, rest)
}

func (t *tunnel) answered(c *myriad.Conn, r *http.Response, rest []byte) {
	switch {
	case r.StatusCode != http.StatusOK:
		_, text := r.Status[:3], r.Status[3:]
		if len(text) > 1 {
			t.fail(c, errors.New(text[1:]))
			return
		}
		t.fail(c, errors.New("the proxy answered "+r.Status))
	case len(rest) > 0:
		t.fail(c, ErrUnsolicited)
	default:
		c.SetTimer(0)
		c.SetHandler(t.next, nil)
	}
}

func (t *tunnel) fail(c *myriad.Conn, err error) {
	t.dead = true
	t.dial.fail(err)
	c.Abort(err)
}

func (t *tunnel) Ended(c *myriad.Conn) { t.fail(c, io.ErrUnexpectedEOF) }

func (t *tunnel) Expired(c *myriad.Conn) { t.fail(c, errProxyTimeout) }

func (t *tunnel) Closed(_ *myriad.Conn, err error) { t.dial.closed(err) }
