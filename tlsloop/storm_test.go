package tlsloop_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// hello is the first record of a client, recorded.
func hello(t testing.TB) []byte {
	t.Helper()
	script := &scripted{empty: io.EOF}
	_ = tls.Client(script, clientConfig()).Handshake()
	if script.out.Len() < 100 {
		t.Fatal("no hello")
	}
	return script.out.Bytes()
}

// A storm of handshakes: good ones, garbage, resets and ends at any byte, silence. The good ones
// succeed, no other connection suffers, and nothing remains.
func TestStorm(t *testing.T) {
	h := echo()
	e := start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(serverConfig(), always(h)))
	first := hello(t)
	var wg sync.WaitGroup
	var good atomic.Int32
	n := 400
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			switch i % 8 {
			case 0:
				nc.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
				io.Copy(io.Discard, nc)
			case 1:
				nc.Write(first[:rand.IntN(len(first))])
				nc.(*net.TCPConn).SetLinger(0)
			case 2:
				nc.Write(first)
				nc.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, nc)
			case 3:
				nc.Write(first)
				nc.Read(make([]byte, 10))
				nc.(*net.TCPConn).SetLinger(0)
			default:
				tc := tls.Client(nc, clientConfig())
				if _, err := tc.Write([]byte("hello")); err != nil {
					t.Error(err)
					return
				}
				if p, err := io.ReadAll(io.LimitReader(tc, 5)); string(p) != "hello" {
					t.Errorf("%q %v", p, err)
					return
				}
				good.Add(1)
				tc.Close()
			}
		}()
	}
	wg.Wait()
	if got := int(good.Load()); got != n/2 {
		t.Errorf("%d of %d handshakes", got, n/2)
	}
	for range n / 2 {
		await(t, "Closed", h.closes)
	}
}

// The engine stops while handshakes are in every phase.
func TestShutdownInMidHandshake(t *testing.T) {
	t.Parallel()
	for range 5 {
		e, err := myriad.Start(myriad.Config{Loops: 2, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		addr := listen(t, e, patient.Handler(serverConfig(), always(echo())))
		first := hello(t)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
					}
					nc, err := net.Dial("tcp", addr)
					if err != nil {
						return
					}
					_ = nc.SetDeadline(time.Now().Add(patience))
					switch i % 4 {
					case 0:
						nc.Write(first[:i])
						<-stop
					case 1:
						nc.Write(first)
						<-stop
					default:
						tc := tls.Client(nc, clientConfig())
						if tc.Handshake() == nil && i%4 == 2 {
							<-stop
						}
					}
					nc.Close()
				}
			}()
		}
		time.Sleep(30 * time.Millisecond) // whatever has been reached by then is a phase
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err = e.Shutdown(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(stop)
		wg.Wait()
	}
}

// A peer that says nothing, or half a hello, is cut off in time; so is one that stops in the
// middle.
func TestHandshakeTimeout(t *testing.T) {
	whole := hello(t)
	for name, first := range map[string][]byte{"nothing": nil, "a part": whole[:50], "the hello": whole} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 1)
			o := tlsloop.Options{Timeout: 30 * time.Millisecond, Failed: func(_ *myriad.Conn, err error,
				_ uint64) {
				failed <- err
			}}
			nc := dialTCP(t, listen(t, start(t, myriad.Config{}), o.Handler(serverConfig(), always(echo()))))
			nc.Write(first)
			if err := await(t, "failure", failed); !strings.Contains(err.Error(),
				"no end of the handshake in time, of which it had 30ms") {
				t.Error(err)
			}
			// who writes when all is over is reset
			if _, err := io.Copy(io.Discard, nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
		})
	}
}

// Callbacks that block delay only their own handshakes, even all that may be called at once.
func TestCallbacksThatBlock(t *testing.T) {
	release := make(chan struct{})
	var calls atomic.Int32
	cfg := serverConfig()
	cert := usual()
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == "slow.example" {
			calls.Add(1)
			<-release
		}
		if hello.ServerName == "panic.example" {
			panic("on purpose")
		}
		return &cert, nil
	}
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, always(echo())))
	handshake := func(name string) error {
		cc := clientConfig()
		cc.ServerName, cc.InsecureSkipVerify = name, true
		nc := dialTCP(t, addr)
		defer nc.Close()
		return tls.Client(nc, cc).Handshake()
	}
	slow := make(chan error, 100)
	for range cap(slow) {
		go func() { slow <- handshake("slow.example") }()
	}
	eventually(t, "all slow callbacks are called", func() bool { return calls.Load() == int32(cap(slow)) })
	for range 10 {
		if err := handshake("localhost"); err != nil {
			t.Errorf("beside %d callbacks that block: %v", calls.Load(), err)
		}
	}
	if err := handshake("panic.example"); err == nil {
		t.Error("a callback that panics: the handshake has succeeded")
	}
	close(release)
	for range cap(slow) {
		if err := <-slow; err != nil {
			t.Error(err)
		}
	}
}

// Connections keep no goroutine.
func TestGoroutines(t *testing.T) {
	h := echo()
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h)))
	before := runtime.NumGoroutine()
	for range 200 {
		tc := dial(t, addr, clientConfig())
		send(t, tc, "hello")
		expect(t, tc, "hello")
	}
	if !goroutinePerConn {
		eventually(t, "200 connections have no more than 20 goroutines",
			func() bool { return runtime.NumGoroutine() <= before+20 })
	}
}

// A callback that ends its goroutine costs its handshake alone, as often as that may be.
func TestCallbacksThatExit(t *testing.T) {
	cert := usual()
	for name, cfg := range map[string]*tls.Config{
		"called elsewhere": {GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName == "exit.example" {
				runtime.Goexit()
			}
			return &cert, nil
		}},
		"called in place": {Certificates: []tls.Certificate{cert}, VerifyConnection: func(s tls.ConnectionState) error {
			if s.ServerName == "exit.example" {
				runtime.Goexit()
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var closed atomic.Int32
			o := tlsloop.Options{Timeout: -1, Closed: func(*myriad.Conn, error) { closed.Add(1) }}
			addr := listen(t, start(t, myriad.Config{Logger: quiet}), o.Handler(cfg, always(echo())))
			handshake := func(name string) error {
				cc := clientConfig()
				cc.ServerName, cc.InsecureSkipVerify, cc.MaxVersion = name, true, tls.VersionTLS12
				nc := dialTCP(t, addr)
				defer nc.Close()
				return tls.Client(nc, cc).Handshake()
			}
			const goroutines = 256 // of an engine, for callbacks
			var wg sync.WaitGroup
			for range 10 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for range goroutines/10 + 1 {
						if err := handshake("exit.example"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("the handshake ends with %v", err)
							return
						}
					}
				}()
			}
			wg.Wait()
			if err := handshake("localhost"); err != nil {
				t.Error(err)
			}
			eventually(t, "all connections are closed",
				func() bool { return int(closed.Load()) >= 10*(goroutines/10+1) })
		})
	}
}
