package load

import (
	"context"
	"fmt"
	"net"
)

// Guard refuses a URL that leads to another machine. Load on a machine that is not one's own is an
// attack, so the caller has to say that it is allowed to make it: then it does not call Guard. All
// addresses of the host's name must be loopback.
func Guard(ctx context.Context, p Plan) error {
	u, err := p.target()
	if err != nil {
		return err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return fmt.Errorf("resolving %s: %w", u.Hostname(), err)
	}
	for _, a := range addresses {
		if !a.Unmap().IsLoopback() {
			return fmt.Errorf("%s is %s, another machine: if it is yours to load, say so with --yes-i-own-this",
				u.Hostname(), a.Unmap())
		}
	}
	return nil
}
