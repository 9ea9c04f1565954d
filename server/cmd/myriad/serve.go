package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/web"
	"github.com/urfave/cli/v3"
)

const (
	// headTimeout and idleTimeout are those of ordinary requests; clients that are held are pinged instead.
	headTimeout = 10 * time.Second
	idleTimeout = 75 * time.Second
)

func serveCommand(stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run the push server",
		Flags: []cli.Flag{
			text("listen", "127.0.0.1:8000", "`HOST:PORT` to listen on"),
			text("api-key", "", "`KEY` that publishers send in X-API-Key"),
			text("token-secret", "", "`SECRET` that signs the tokens (JWT, HS256) of clients"),
			&cli.StringSliceFlag{Name: "allowed-origin", Usage: "`ORIGIN` of pages besides the server's own that may connect; * stands for any part, may be repeated", Sources: env("allowed-origin")},
			&cli.BoolFlag{Name: "deny-client-publish", Usage: "let only the HTTP API publish", Sources: env("deny-client-publish")},
			&cli.IntFlag{Name: "queue-limit", Value: 1 << 20, Usage: "`BYTES` that may wait for one client before it is disconnected as slow", Sources: env("queue-limit")},
			&cli.DurationFlag{Name: "ping-interval", Value: 25 * time.Second, Usage: "`TIME` between two pings to a client, in whole seconds", Sources: env("ping-interval")},
			&cli.DurationFlag{Name: "shutdown-timeout", Value: 15 * time.Second, Usage: "`TIME` that clients get to take what is queued for them when the server ends", Sources: env("shutdown-timeout")},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			return serve(ctx, settings{
				listen: c.String("listen"), shutdownTimeout: c.Duration("shutdown-timeout"),
				log: slog.New(slog.NewTextHandler(stderr, nil)),
				push: push.Config{
					APIKey: c.String("api-key"), TokenSecret: c.String("token-secret"), AllowedOrigins: c.StringSlice("allowed-origin"),
					DenyClientPublish: c.Bool("deny-client-publish"), Version: "myriad " + version(),
					Limits: push.Limits{Queue: c.Int("queue-limit")}, Timing: push.Timing{Ping: c.Duration("ping-interval")},
				},
			})
		},
	}
}

func text(name, value, usage string) cli.Flag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Sources: env(name)}
}

func env(flag string) cli.ValueSourceChain {
	return cli.EnvVars("MYRIAD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
}

// settings are what the flags say.
type settings struct {
	listen          string
	shutdownTimeout time.Duration
	log             *slog.Logger
	push            push.Config
}

// serve runs the server until ctx ends, and then shuts it down.
func serve(ctx context.Context, s settings) error {
	development, err := checkExposure(s.listen, s.push.APIKey, s.push.TokenSecret)
	if err != nil {
		return err
	}
	if s.push.Limits.Queue <= 0 || s.push.Timing.Ping < time.Second {
		return errors.New("--queue-limit must be positive and --ping-interval at least 1s")
	}
	engine, err := myriad.Start(myriad.Config{Logger: s.log})
	if err != nil {
		return err
	}
	s.push.Logger = s.log
	if development {
		s.push.AllowedOrigins = append(s.push.AllowedOrigins, localOrigins...)
	}
	pusher, err := push.New(s.push)
	if err != nil {
		return err
	}
	var handler http.Handler = pusher
	if development {
		handler = localHost(pusher)
	}
	h := &web.Server{
		Handler: handler, Engine: engine, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	}
	listener, err := h.Listen("tcp", s.listen)
	if err == nil {
		s.announce(listener.Addr(), development)
		<-ctx.Done()
		s.log.Info("myriad: shutting down", "timeout", s.shutdownTimeout)
	}
	return errors.Join(err, shutdown(s.shutdownTimeout, pusher, h, engine))
}

func (s settings) announce(addr net.Addr, development bool) {
	s.log.Info("myriad: serving", "url", "http://"+addr.String(), "version", version())
	switch {
	case development:
		s.log.Warn("myriad: development mode: every program on this machine may connect and publish, no key and no token needed; " +
			"set --api-key (MYRIAD_API_KEY) and --token-secret (MYRIAD_TOKEN_SECRET) before others can reach it")
	case s.push.APIKey == "":
		s.log.Warn("myriad: every program on this machine may publish: set --api-key (MYRIAD_API_KEY)")
	case s.push.TokenSecret == "":
		s.log.Warn("myriad: every program on this machine may connect: set --token-secret (MYRIAD_TOKEN_SECRET)")
	}
}

// shutdown ends everything in the order in which it stands on each other. What has been accepted is delivered first.
func shutdown(timeout time.Duration, pusher *push.Server, h *web.Server, engine *myriad.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	pusher.Drain()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Shutdown(ctx) }() // stops listening at once, and waits for requests
	err := errors.Join(pusher.Shutdown(ctx), <-stopped, engine.Shutdown(ctx))
	if err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}
