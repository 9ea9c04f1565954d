package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// A greeting is a client's side of the opening handshake: the handler of a connection until the
// server has agreed. Its methods run on the loop, wait on Dial's goroutine.
type greeting struct {
	settings *settings
	request  []byte
	key      string
	value    any // of the connection
	answer   responseReader
	refusal  *refusalBody // of a response that is not a 101

	waiter   driver.Parker
	done     atomic.Bool // the rest is written before it
	conn     *Conn
	response *http.Response
	err      error
}

func (g *greeting) Opened(c *myriad.Conn) {
	c.SetTimer(g.settings.handshakeTimeout)
	// of that, Closed tells the reason
	if _, err := c.Write(g.request); err != nil && !errors.Is(err, myriad.ErrClosed) {
		c.Abort(err)
	}
	g.request = nil
}

func (g *greeting) Received(c *myriad.Conn, p []byte) {
	switch {
	case g.done.Load():
	case g.refusal != nil:
		g.refused(c, p)
	default:
		response, rest, err := g.answer.add(p)
		if err != nil {
			g.fail(c, fmt.Errorf("the server's answer: %w", err))
		} else if response != nil {
			g.answered(c, response, rest)
		}
	}
}

// answered judges the response. rest are the bytes behind its head.
func (g *greeting) answered(c *myriad.Conn, response *http.Response, rest []byte) {
	g.response = response
	if response.StatusCode != http.StatusSwitchingProtocols {
		g.refusal = newRefusalBody(&g.answer.head)
		g.refused(c, rest)
		return
	}
	subprotocol, err := g.agreed(response)
	if err != nil {
		g.fail(c, err)
		return
	}
	terms, err := g.settings.agreedExtensions(response.Header["Sec-Websocket-Extensions"])
	if err != nil {
		g.fail(c, err)
		return
	}
	conn := newConn(g.settings, terms)
	conn.nc, conn.subprotocol = c, subprotocol
	conn.SetValue(g.value)
	g.conn = conn
	c.SetHandler((*handler)(conn), rest)
	g.finish(nil)
}

// agreed is RFC 6455 §4.1: what a client checks in a 101.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-4.1
func (g *greeting) agreed(r *http.Response) (subprotocol uint8, err error) {
	upgrade, connection, accept := strings.Join(r.Header["Upgrade"], ","), strings.Join(r.Header["Connection"], ","),
		r.Header["Sec-Websocket-Accept"]
	switch {
	case !hasToken(upgrade, "websocket") || !hasToken(connection, "upgrade"):
		return 0, errors.New("the server's 101 does not upgrade to websocket")
	case len(accept) != 1 || accept[0] != string(appendAcceptKey(nil, g.key)):
		return 0, errors.New("the server's Sec-WebSocket-Accept is not the answer to our key")
	}
	chosen := r.Header["Sec-Websocket-Protocol"]
	if len(chosen) == 0 {
		return 0, nil
	}
	if subprotocol = g.settings.number(chosen[0]); subprotocol == 0 || len(chosen) > 1 {
		return 0, fmt.Errorf("the server chose the subprotocol %q, which was not offered", chosen)
	}
	return subprotocol, nil
}

// agreedExtensions is what the server has accepted of our offer.
func (s *settings) agreedExtensions(lines []string) (t deflateTerms, err error) {
	for _, line := range lines {
		for at := 0; at < len(line); {
			e, next := nextExtension(line, at)
			ok := next >= 0 && e.isDeflate && !e.invalid && s.packing.policy.on && !t.agreed
			if ok {
				t, ok = s.packing.policy.confirm(e.params)
			}
			if !ok {
				return t, fmt.Errorf("the server wants extensions that were not offered like that: %q", lines)
			}
			at = next
		}
	}
	return t, nil
}

// refused takes in a part of the body of a response that is not a 101, until it is whole.
func (g *greeting) refused(c *myriad.Conn, p []byte) {
	if g.refusal.add(p) {
		g.refusedWith(c)
	}
}

// refusedWith fails the handshake with the response and what has come of its body.
func (g *greeting) refusedWith(c *myriad.Conn) {
	g.response.Body = io.NopCloser(&g.refusal.bytes)
	g.fail(c, fmt.Errorf("the server answered %s", g.response.Status))
}

func (g *greeting) fail(c *myriad.Conn, err error) {
	_ = c.Close()
	g.finish(err)
}

func (g *greeting) finish(err error) {
	if g.done.Load() {
		return
	}
	g.err = err
	g.done.Store(true)
	g.waiter.Unpark()
}

func (g *greeting) Ended(c *myriad.Conn) {
	if g.refusal != nil {
		g.refusedWith(c)
		return
	}
	g.fail(c, fmt.Errorf("the server ended the connection without a response: %w", io.ErrUnexpectedEOF))
}

func (g *greeting) Expired(c *myriad.Conn) {
	g.finish(fmt.Errorf("no response in time: %w", os.ErrDeadlineExceeded))
	c.Abort(nil)
}

func (g *greeting) Closed(_ *myriad.Conn, err error) {
	if err == nil {
		err = myriad.ErrClosed
	}
	g.finish(err)
}

// untrusted keeps failed TLS handshakes out of the engine's log: Dial returns them.
func (g *greeting) untrusted(*myriad.Conn, error, uint64) {}

// wait returns when the handshake has ended or ctx has.
func (g *greeting) wait(ctx context.Context, c *myriad.Conn) error {
	stop := context.AfterFunc(ctx, g.waiter.Unpark)
	defer stop()
	for !g.done.Load() {
		g.waiter.Park()
		if ctx.Err() != nil && !g.done.Load() {
			c.Abort(context.Cause(ctx)) // Closed follows, or the handshake was quicker
			ctx = context.WithoutCancel(ctx)
		}
	}
	return g.err
}
