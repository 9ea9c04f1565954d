package client

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is what naming has started; nil: the system's is asked.
var nameServer atomic.Pointer[string]

// The resolver is set once, because lookups go on when nothing waits for them any more.
func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, addr string) (net.Conn,
		error) {
		if s := nameServer.Load(); s != nil {
			network, addr = "udp", *s
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
}

// naming has names resolved by a server that knows these, and is silent for all others.
func naming(t *testing.T, names map[string][]string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		p := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(p)
			if err != nil {
				return
			}
			if reply := resolved(p[:n], names); reply != nil {
				pc.WriteTo(reply, from)
			}
		}
	}()
	addr := pc.LocalAddr().String()
	nameServer.Store(&addr)
	t.Cleanup(func() {
		nameServer.Store(nil)
		pc.Close()
		<-over
	})
}

// resolved is the answer to a question, or nil.
func resolved(question []byte, names map[string][]string) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	addrs, known := names[q.Name.String()]
	if !known {
		return nil
	}
	m.Response, m.Additionals = true, nil
	for _, text := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		ip := net.ParseIP(text)
		switch v4 := ip.To4(); {
		case q.Type == dnsmessage.TypeA && v4 != nil:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: [4]byte(v4)}})
		case q.Type == dnsmessage.TypeAAAA && v4 == nil:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h,
				Body: &dnsmessage.AAAAResource{AAAA: [16]byte(ip)}})
		}
	}
	reply, _ := m.Pack()
	return reply
}

// A name that is not resolved holds up no other one, and its requests end by their contexts.
func TestHungNameHoldsUpNoOther(t *testing.T) {
	s := serveHTTP(t, ok)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	naming(t, map[string][]string{"quick.test.": {"127.0.0.1"}})
	for _, limit := range []int{0, 1} {
		tr := fresh(t, &Transport{MaxConnsPerHost: limit})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var ended atomic.Int32
		for range 20 {
			wg.Go(func() {
				_, err := tr.RoundTrip(request(t, "GET", "http://hangs.test:"+port, nil).WithContext(ctx))
				if err != context.Canceled { //nolint:errorlint // as it is
					t.Error(err)
				}
				ended.Add(1)
			})
		}
		for range 5 {
			if got := whole(tr, request(t, "GET", "http://quick.test:"+port, nil)); got != `200 "HTTP/1.1" <nil>` {
				t.Error(got)
			}
		}
		if n := ended.Load(); n > 0 {
			t.Errorf("%d requests of the other name have ended", n)
		}
		cancel()
		wg.Wait()
	}
}

// full is an address of a server whose queue is full: the connection to it never stands.
func full(t *testing.T, addr syscall.Sockaddr, at string) {
	t.Helper()
	family := syscall.AF_INET
	if _, six := addr.(*syscall.SockaddrInet6); six {
		family = syscall.AF_INET6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err = syscall.Bind(fd, addr); err == nil {
		err = syscall.Listen(fd, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	for range 8 {
		c, err := net.DialTimeout("tcp", at, 50*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("the queue takes no end")
}

// An address that does not answer costs a moment (RFC 8305), of whichever family. http.Transport
// leaves a second IPv4 address until the first one has failed.
func TestHungAddressCostsAMoment(t *testing.T) {
	for name, addrs := range map[string][]string{"six": {"::1", "127.0.0.1"}, "four": {"127.0.0.2", "127.0.0.1"}} {
		t.Run(name, func(t *testing.T) {
			s := serveHTTP(t, ok)
			_, text, _ := net.SplitHostPort(s.Listener.Addr().String())
			port, _ := strconv.Atoi(text)
			if name == "six" {
				full(t, &syscall.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}, net.JoinHostPort("::1", text))
			} else {
				full(t, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 2}},
					net.JoinHostPort("127.0.0.2", text))
			}
			host := fmt.Sprintf("%s.test", name)
			naming(t, map[string][]string{host + ".": addrs})
			tr := fresh(t, &Transport{MaxConnsPerHost: 1})
			for range 2 {
				req := request(t, "GET", "http://"+net.JoinHostPort(host, text), nil)
				ctx, cancel := context.WithTimeout(req.Context(), patience)
				if got := whole(tr, req.WithContext(ctx)); got != `200 "HTTP/1.1" <nil>` {
					t.Error(got)
				}
				cancel()
			}
		})
	}
}
