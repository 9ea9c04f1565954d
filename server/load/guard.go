package load

import (
	"context"
	"fmt"
	"net"
)

// Guard refuses a URL that leads to another machine. Load on a machine that is not one's own is an
// attack, so the caller has to say that it is allowed to make it: then it does not call Guard. All
// addresses of the host's name must be loopback, and those of Plan.Addresses too.
func Guard(ctx context.Context, p Plan) error {
	u, err := p.target()
	if err != nil {
		return err
	}
	hosts := []string{u.Hostname()}
	for _, address := range p.Addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		hosts = append(hosts, host)
	}
	for _, host := range hosts {
		if err := guardHost(ctx, host); err != nil {
			return err
		}
	}
	return nil
}

func guardHost(ctx context.Context, host string) error {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", host, err)
	}
	for _, a := range addresses {
		if !a.Unmap().IsLoopback() {
			return fmt.Errorf("%s is %s, another machine: if it is yours to load, say so with --yes-i-own-this",
				host, a.Unmap())
		}
	}
	return nil
}
