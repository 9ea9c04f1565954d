package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Literal addresses are resolved without a query.
func TestResolveLiterals(t *testing.T) {
	for _, tc := range []struct{ network, addr, want string }{
		{"tcp", "127.0.0.1:80", "[127.0.0.1:80]"},
		{"tcp4", "127.0.0.1:http", "[127.0.0.1:80]"},
		{"tcp", "[::1]:443", "[[::1]:443]"},
		{"tcp6", "[fe80::1%9]:1", "[[fe80::1%9]:1]"},
		{"tcp", "[::ffff:127.0.0.1]:80", "[127.0.0.1:80]"},
		{"unix", "/run/x y", "[/run/x y]"},
	} {
		addrs, err := Process{}.Resolve(t.Context(), tc.network, tc.addr)
		if got := fmt.Sprint(addrs); err != nil || got != tc.want {
			t.Errorf("Resolve %s %s: %s, %v; want %s", tc.network, tc.addr, got, err, tc.want)
		}
		for _, a := range addrs {
			if network := a.Network(); network != tc.network[:len(network)] {
				t.Errorf("Resolve %s %s: an address of network %s", tc.network, tc.addr, network)
			}
		}
	}
}

func TestResolveFails(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx           context.Context
		network, addr string
		want          error // nil: any
	}{
		{t.Context(), "tcp", "no port", nil},
		{t.Context(), "tcp", "127.0.0.1:no-such-service", nil},
		{t.Context(), "tcp4", "[::1]:80", nil},
		{t.Context(), "udp", "127.0.0.1:80", ErrUnsupported},
		{ended, "tcp", "name.invalid:80", nil},
	} {
		addrs, err := Process{}.Resolve(tc.ctx, tc.network, tc.addr)
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("Resolve %s %s: %v, %v; want %v", tc.network, tc.addr, addrs, err, tc.want)
		}
	}
}

// The spare is one descriptor, and closing it gives it back.
func TestSpare(t *testing.T) {
	s, err := Process{}.Spare()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err == nil {
		t.Error("closed twice")
	}
}
