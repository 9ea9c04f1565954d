// Command gnet serves the Redis protocol with github.com/panjf2000/gnet, commands on its event
// loops, parsed by redcon's codec, as gnet's own example does.
package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/panjf2000/gnet/v2"
	"github.com/tidwall/redcon"
)

func main() {
	harness.Main(map[string]harness.Start{"resp": func(addr string) (net.Addr, error) {
		bound, err := free(addr)
		if err != nil {
			return nil, err
		}
		s := &server{ready: make(chan struct{})}
		failed := make(chan error, 1)
		go func() {
			failed <- gnet.Run(s, "tcp://"+bound.String(), gnet.WithMulticore(true),
				gnet.WithTCPNoDelay(gnet.TCPNoDelay),
				gnet.WithLogger(silent{}))
		}()
		select {
		case <-s.ready:
			return bound, nil
		case err := <-failed:
			return nil, err
		}
	}})
}

// free is a port that is free now: gnet does not say which one it has bound.
func free(addr string) (net.Addr, error) {
	var c net.ListenConfig
	ln, err := c.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), ln.Close()
}

// silent keeps gnet's log away from the standard output, which the instrument reads.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

type server struct {
	gnet.BuiltinEventEngine
	ready chan struct{}
	keys  harness.Keys
}

// A session is a connection's: commands that have not come completely, and room for replies.
type session struct {
	in, out []byte
	args    [][]byte
}

func (s *server) OnBoot(gnet.Engine) gnet.Action {
	close(s.ready)
	return gnet.None
}

func (s *server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(new(session))
	return nil, gnet.None
}

func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
	state := c.Context().(*session)
	p, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if len(state.in) > 0 {
		state.in = append(state.in, p...)
		p = state.in
	}
	out, rest, err := s.answerAll(state, p)
	if err != nil {
		out = fmt.Appendf(out, "-ERR %v\r\n", err)
	}
	if _, err := c.Write(out); err != nil {
		return gnet.Close
	}
	state.out = out
	if len(rest) > 0 {
		state.in = append([]byte(nil), rest...)
	} else {
		state.in = nil
	}
	return gnet.None
}

// answerAll answers the complete commands in p.
func (s *server) answerAll(state *session, p []byte) (out, rest []byte, err error) {
	out = state.out[:0]
	for len(p) > 0 {
		complete, args, _, left, err := redcon.ReadNextCommand(p, state.args[:0])
		if err != nil {
			return out, nil, err
		}
		if !complete {
			break
		}
		state.args, p = args, left
		if len(args) > 0 {
			out = s.answer(out, args)
		}
	}
	return out, p, nil
}

func (s *server) answer(out []byte, args [][]byte) []byte {
	switch strings.ToUpper(string(args[0])) {
	case "SET":
		s.keys.Set(args[1], args[2])
		return redcon.AppendString(out, "OK")
	case "GET":
		value, ok := s.keys.AppendGet(nil, args[1])
		if !ok {
			return redcon.AppendNull(out)
		}
		return redcon.AppendBulk(out, value)
	case "PING":
		return redcon.AppendString(out, "PONG")
	case "SLEEP":
		time.Sleep(harness.Delay)
		return redcon.AppendString(out, "OK")
	}
	return redcon.AppendError(out, "ERR unknown command")
}
