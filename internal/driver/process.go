package driver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/myriad-go/myriad/internal/driver/ballast"
)

// Process is the half of a System that every real operating system shares: the clock, goroutines,
// name resolution.
type Process struct{}

// Now is the wall clock with its monotonic reading.
func (Process) Now() time.Time { return time.Now() }

// Go starts a goroutine.
func (Process) Go(f func()) { go f() }

// NewParker returns a Parker for goroutines.
func (Process) NewParker() Parker { return &parker{permit: make(chan struct{}, 1)} }

// Executor is nil: the caller makes its own pool.
func (Process) Executor() Executor { return nil }

// Spare opens a descriptor that is good for nothing but to be given up when there is no other.
func (Process) Spare() (io.Closer, error) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Facilities are those of every operating system: this world has a garbage collector.
func (p Process) Facilities() Facilities { return Facilities{Spare: p.Spare, Ballast: ballast.Hold} }

// Resolve asks the resolver of the net package, whose order it keeps.
func (Process) Resolve(ctx context.Context, network, addr string) ([]net.Addr, error) {
	switch network {
	case "unix":
		return []net.Addr{&net.UnixAddr{Name: addr, Net: network}}, nil
	case "tcp", "tcp4", "tcp6":
		return resolveTCP(ctx, network, addr)
	}
	return nil, CheckNetwork(network)
}

// CheckNetwork fails for networks whose connections are not streams, which package net knows too,
// or that do not exist.
func CheckNetwork(network string) error {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
		return nil
	}
	return fmt.Errorf("network %q: %w (use tcp, tcp4, tcp6 or unix)", network, ErrUnsupported)
}

func resolveTCP(ctx context.Context, network, addr string) ([]net.Addr, error) {
	if ap, err := netip.ParseAddrPort(addr); err == nil && network == "tcp" && !ap.Addr().Is4In6() {
		return []net.Addr{net.TCPAddrFromAddrPort(ap)}, nil // most dials: it costs the resolver ten allocations
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "localhost"
	}
	ips, err := lookup(ctx, "ip"+network[len("tcp"):], host)
	if err != nil {
		return nil, err
	}
	addrs := make([]net.Addr, len(ips))
	for i, ip := range ips {
		addrs[i] = &net.TCPAddr{IP: ip.Unmap().AsSlice(), Port: port, Zone: ip.Zone()}
	}
	return addrs, nil
}

// lookup leaves literal addresses with a zone out of the resolver, which would lose it.
func lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() != "" && network != "ip4" {
		return []netip.Addr{ip}, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, network, host)
}

type parker struct {
	permit chan struct{}
	timer  *time.Timer // of the goroutine that parks
}

func (p *parker) Park() { <-p.permit }

func (p *parker) ParkFor(d time.Duration) {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.permit:
		p.timer.Stop()
	case <-p.timer.C:
	}
}

func (p *parker) Unpark() {
	select {
	case p.permit <- struct{}{}:
	default:
	}
}
