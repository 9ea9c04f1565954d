package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
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

func serveCommand(stdout, stderr io.Writer) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read these options from `FILE`, too (TOML)", Sources: cli.EnvVars("MYRIAD_CONFIG"), TakesFile: true},
		&cli.BoolFlag{Name: "check", Usage: "say whether the configuration is valid, and do not start"},
	}
	for _, o := range options {
		flags = append(flags, o.flag())
	}
	return &cli.Command{
		Name:        "serve",
		Usage:       "run the push server",
		Description: "Every option can be given as a flag, in the environment, or in the file of --config, and counts in this order.",
		Flags:       flags,
		// The library would take a comma anywhere for the end of a value: see option.separator.
		DisableSliceFlagSeparator: true,
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return fmt.Errorf("serve takes no arguments and was given %q: name the address with --listen HOST:PORT", c.Args().First())
			}
			s, err := configure(c, os.Environ(), stderr)
			if err != nil {
				return err
			}
			s.push.Version = "myriad " + version()
			if c.Bool("check") {
				return check(s, stdout)
			}
			return serve(ctx, s)
		},
	}
}

// check does everything that serve does before it listens.
func check(s settings, stdout io.Writer) error {
	_, _, err := s.prepare()
	wrong := []error{err}
	s.push.Logger, s.engine.Logger = s.log, s.log
	if s.engine.Loops <= maxLoops { // else prepare has said so
		engine, err := myriad.Start(s.engine)
		if wrong = append(wrong, err); err == nil {
			wrong = append(wrong, engine.Shutdown(context.Background()))
		}
	}
	pusher, err := push.New(s.push)
	if wrong = append(wrong, err); err == nil {
		wrong = append(wrong, pusher.Shutdown(context.Background()))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "the configuration is valid")
	return err
}

// prepare does what needs neither an engine nor a port, and tells everything that is wrong.
func (s settings) prepare() (development bool, certificates *keeper, err error) {
	development, exposed := checkExposure(s.listen, s.push.APIKey, s.push.TokenSecret)
	certificates, unread := s.certificates()
	return development, certificates, errors.Join(exposed, s.check(), unread)
}

// check finds what is wrong with values that are right each for itself.
func (s settings) check() error {
	var wrong []error
	if ping := s.push.Timing.Ping; ping < time.Second || ping%time.Second != 0 {
		wrong = append(wrong, fmt.Errorf("--ping-interval %v: it must be whole seconds, at least 1s", ping))
	}
	if s.engine.Loops > maxLoops {
		wrong = append(wrong, fmt.Errorf("--loops %d: there may be at most %d", s.engine.Loops, maxLoops))
	}
	switch limit := s.push.Limits; {
	case limit.Publication > maxPublication:
		wrong = append(wrong, fmt.Errorf("--publication-limit %s: it may be at most 8MiB", sizeText(limit.Publication)))
	case limit.Queue < limit.Publication:
		wrong = append(wrong, fmt.Errorf("--queue-limit %s is less than --publication-limit %s: the largest publication would not fit, and disconnect every client that it is for", sizeText(limit.Queue), sizeText(limit.Publication)))
	}
	return errors.Join(wrong...)
}

// These are the limits of the engine and of package push.
const (
	maxLoops       = 255
	maxPublication = 8 << 20
)

// serve runs the server until ctx ends, and then shuts it down.
func serve(ctx context.Context, s settings) error {
	development, certificates, err := s.prepare()
	if err != nil {
		return err
	}
	s.engine.Logger = s.log
	engine, err := myriad.Start(s.engine)
	if err != nil {
		return err
	}
	s.push.Logger, s.push.Engine = s.log, engine
	if development {
		s.push.AllowedOrigins = append(s.push.AllowedOrigins, localOrigins...)
	}
	pusher, err := push.New(s.push)
	if err != nil {
		return errors.Join(err, engine.Shutdown(context.Background()))
	}
	var handler http.Handler = pusher
	if development {
		handler = localHost(withDebug(pusher, engine))
	}
	h := &web.Server{
		Handler: handler, Engine: engine, Dispatch: web.DispatchAuto, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
		ReadTimeout: s.readTimeout, WriteTimeout: s.writeTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	}
	hangups, stop := hearHangups() // before anybody is told that the server is there
	defer stop()
	listener, err := s.listenWith(ctx, h, certificates, hangups)
	if err != nil {
		err = fmt.Errorf("--listen %s: %w%s", s.listen, cause(err), remedy(err))
	} else {
		s.announce(listener.Addr(), development)
		<-ctx.Done()
		s.log.Info("myriad: shutting down", "timeout", s.shutdownTimeout.String())
	}
	return errors.Join(err, s.shutdown(pusher, h, engine))
}

// cause is what the system says of an operation on the network, without who has asked for it.
func cause(err error) error {
	if operation := (*net.OpError)(nil); errors.As(err, &operation) {
		return operation.Err
	}
	return err
}

// remedy is what to do about an address that cannot be listened on, to be appended to the error; empty if there is nothing to say.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": another process has the port: stop it, or listen on another"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": it is no address of this machine: 127.0.0.1 is for programs on it, 0.0.0.0 for all networks"
	case errors.Is(err, syscall.EACCES):
		return ": a port below 1024 takes a privilege: see docs/guides/operate.md, or listen on another"
	}
	return ""
}

// listenWith listens for HTTP, or for HTTPS if there is a certificate, which is watched until ctx ends.
func (s settings) listenWith(ctx context.Context, h *web.Server, certificates *keeper, hangups <-chan os.Signal) (*web.Listener, error) {
	if certificates == nil {
		ln, err := h.Listen("tcp", s.listen)
		if err == nil {
			go explainHangups(ctx, hangups, s.log)
		}
		return ln, err
	}
	h.TLSConfig = certificates.config()
	ln, err := h.ListenTLS("tcp", s.listen, "", "")
	if err == nil {
		go certificates.watch(ctx, lookPeriod, hangups)
	}
	return ln, err
}

// scheme is how the server's URLs begin.
func (s settings) scheme() string {
	if s.tlsCert != "" {
		return "https://"
	}
	return "http://"
}

func (s settings) announce(addr net.Addr, development bool) {
	if s.readable != "" {
		s.log.Warn("myriad: everybody on this machine can read the secrets in the configuration: chmod o-r", "file", s.readable)
	}
	s.log.Info("myriad: serving", "url", s.scheme()+addr.String(), "version", version())
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
		s.log.Warn("myriad: cut off the connections that did not end in time", "connections", left, "timeout", s.shutdownTimeout.String())
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
