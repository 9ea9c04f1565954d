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

// These are the times of ordinary requests: for a head, for a head with its body, for an answer to be taken, and between two
// requests. Clients that are held are pinged instead. A request is read in less time than the default of --shutdown-timeout, so that
// half a one does not use it up.
const (
	headTimeout  = 10 * time.Second
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 75 * time.Second
)

func serveCommand(stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run the push server",
		Flags: []cli.Flag{
			text("listen", "127.0.0.1:8000", "`HOST:PORT` to listen on"),
			text("api-key", "", "`KEY` that publishers send in X-API-Key"),
			text("console-key", "", "`KEY` that the console needs; else --api-key"),
			&cli.BoolFlag{Name: "disable-console", Usage: "serve no console", Sources: env("disable-console")},
			text("token-secret", "", "`SECRET` that signs the tokens (JWT, HS256) of clients"),
			&cli.StringSliceFlag{Name: "allowed-origin", Usage: "`ORIGIN` of pages besides the server's own that may connect; * stands for any part, may be repeated", Sources: env("allowed-origin")},
			&cli.BoolFlag{Name: "deny-client-publish", Usage: "let only the HTTP API publish", Sources: env("deny-client-publish")},
			&cli.IntFlag{Name: "queue-limit", Value: 1 << 20, Usage: "`BYTES` that may wait for one client before it is disconnected as slow", Sources: env("queue-limit")},
			&cli.DurationFlag{Name: "ping-interval", Value: 25 * time.Second, Usage: "`TIME` between two pings to a client, in whole seconds", Sources: env("ping-interval")},
			&cli.DurationFlag{Name: "shutdown-timeout", Value: 15 * time.Second, Usage: "`TIME` that clients get to take what is queued for them when the server ends", Sources: env("shutdown-timeout")},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return fmt.Errorf("serve takes no arguments and was given %q: name the address with --listen HOST:PORT", c.Args().First())
			}
			return serve(ctx, settings{
				listen: c.String("listen"), shutdownTimeout: c.Duration("shutdown-timeout"),
				readTimeout: readTimeout, writeTimeout: writeTimeout,
				log: slog.New(slog.NewTextHandler(stderr, nil)),
				push: push.Config{
					APIKey: c.String("api-key"), ConsoleKey: c.String("console-key"), DisableConsole: c.Bool("disable-console"), TokenSecret: c.String("token-secret"), AllowedOrigins: c.StringSlice("allowed-origin"),
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
	readTimeout     time.Duration
	writeTimeout    time.Duration
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
	s.push.Logger, s.push.Engine = s.log, engine
	if development {
		s.push.AllowedOrigins = append(s.push.AllowedOrigins, localOrigins...)
	}
	pusher, err := push.New(s.push)
	if err != nil {
		return err
	}
	var handler http.Handler = pusher
	if development {
		handler = localHost(withDebug(pusher, engine))
	}
	h := &web.Server{
		Handler: handler, Engine: engine, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
		ReadTimeout: s.readTimeout, WriteTimeout: s.writeTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	}
	listener, err := h.Listen("tcp", s.listen)
	if err == nil {
		s.announce(listener.Addr(), development)
		<-ctx.Done()
		s.log.Info("myriad: shutting down", "timeout", s.shutdownTimeout)
	}
	return errors.Join(err, s.shutdown(pusher, h, engine))
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

// shutdown ends everything in the order in which it stands on each other. What has been accepted is delivered first. Clients that
// do not let themselves be ended in time are cut off, which is how it is meant to be and no error.
func (s settings) shutdown(pusher *push.Server, h *web.Server, engine *myriad.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.shutdownTimeout)
	defer cancel()
	pusher.Drain()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Shutdown(ctx) }() // stops listening at once, and waits for requests
	err := errors.Join(pusher.Shutdown(ctx), <-stopped)
	left := engine.Stats().Conns
	if ctx.Err() != nil {
		err = errors.Join(err, h.Close())
	}
	err = errors.Join(err, engine.Shutdown(ctx)) // cuts off whoever is left when ctx ends
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("myriad: cut off the connections that did not end in time", "connections", left, "timeout", s.shutdownTimeout)
	}
	if err = without(err, context.DeadlineExceeded); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}

// without returns what err joins besides target.
func without(err, target error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, one := range joined.Unwrap() {
			rest = append(rest, without(one, target))
		}
		return errors.Join(rest...)
	}
	if errors.Is(err, target) {
		return nil
	}
	return err
}
