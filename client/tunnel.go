package client

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/tunnel"
)

// through is a dial by a proxy, behind which next speaks.
func (d *dialing) through(next myriad.Handler) *tunnel.Dial {
	return &tunnel.Dial{Proxy: d.proxy, Target: d.addr, Next: next, Timeout: tunnel.Timeout, Limits: d.t.limits(0),
		Failed: d.fail, Over: d.over.Load}
}

// tunnel is the handler of a connection to an HTTP proxy until that has connected it to the server.
func (d *dialing) tunnel(next myriad.Handler) (myriad.Handler, error) {
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
		header.Set("Proxy-Authorization", tunnel.BasicAuth(u))
	}
	asked := &http.Request{Method: "CONNECT", URL: &url.URL{Opaque: d.addr}, Host: d.addr, Header: header}
	judge := func(head *h1.ResponseHead) error { return d.judge(asked, head) }
	return tunnel.Connect(d.through(next), connectRequest(d.addr, header), judge), nil
}

func connectRequest(addr string, header http.Header) []byte {
	p := h1.AppendRequestLine(nil, "CONNECT", addr)
	host := addr
	if h := header.Get("Host"); h != "" {
		host = h
	}
	p = h1.AppendField(p, "Host", host)
	if _, set := header["User-Agent"]; !set {
		p = h1.AppendField(p, "User-Agent", userAgent)
	} else if agent := header.Get("User-Agent"); agent != "" {
		p = h1.AppendField(p, "User-Agent", agent)
	}
	return append(appendFields(p, header, &Call{}), "\r\n"...)
}

// judge decides whether a proxy's answer to CONNECT connects. As in net/http only 200 does, and the
// reason is the error's text.
func (d *dialing) judge(asked *http.Request, head *h1.ResponseHead) error {
	r := newResponse(&Call{req: asked, original: asked}, head)
	r.Body = http.NoBody
	if f := d.t.OnProxyConnectResponse; f != nil {
		if err := f(d.ctx, d.proxy, asked, r); err != nil {
			return err
		}
	}
	switch {
	case head.Status == http.StatusOK:
		return nil
	case len(head.Reason) > 0:
		return errors.New(string(head.Reason))
	}
	return errors.New("the proxy answered " + r.Status)
}
