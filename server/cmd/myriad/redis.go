package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/myriad-go/myriad/resp"
)

// openRedis serves clients of Redis at --redis-listen. Without the option it returns nil.
func (r *running) openRedis(certificates *keeper) (net.Addr, error) {
	a := r.redis
	if a == nil {
		return nil, nil
	}
	if a.kind == unixAddress {
		return r.openRedisUnix(a)
	}
	listen := r.door.Listen
	if certificates != nil {
		r.door.TLSConfig = certificates.config()
		listen = r.door.ListenTLS
	}
	ln, err := listen("tcp", a.target)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w%s", a.option, a.text, cause(err), remedy(err))
	}
	return ln.Addr(), nil
}

// closeRedis answers the commands of Redis clients that have come, and closes their connections. It
// comes before the push server's end, so that each PUBLISH is either published or not answered.
// Clients that do not read their answers in a third of the time to shut down are reset, because the
// other clients need the rest of it.
func (r *running) closeRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.shutdownTimeout/3)
	defer cancel()
	err := r.door.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, r.door.Close())
	}
	return err
}

// openRedisUnix creates the socket as openUnix does.
func (r *running) openRedisUnix(a *address) (net.Addr, error) {
	if r.predecessor == nil { // else that one listens
		if err := removeStale(a.target); err != nil {
			return nil, a.wrong(err.Error())
		}
	}
	var ln *resp.Listener
	err := withUmask(0o177, func() (err error) {
		ln, err = r.door.Listen("unix", a.target)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w%s", a.option, a.text, cause(err), remedy(err))
	}
	if err := os.Chmod(a.target, fs.FileMode(r.socketMode)); err != nil {
		return nil, fmt.Errorf("%s %s: --socket-mode: %w", a.option, a.text, err)
	}
	return ln.Addr(), nil
}
