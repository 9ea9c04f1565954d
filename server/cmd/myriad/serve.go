package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/web"
	"github.com/urfave/cli/v3"
)

// These are the time limits of ordinary requests: for a head, for a head and its body, for the
// client to read an answer, and between two requests. WebSocket and SSE clients are pinged instead.
// The limit for reading a request is below the default of --shutdown-timeout, so that an incomplete
// request does not use up that time.
const (
	headTimeout  = 10 * time.Second
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 75 * time.Second
)

func serveCommand(stdout, stderr io.Writer) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "`FILE` (TOML) with any of these options",
			Sources: cli.EnvVars("MYRIAD_CONFIG"), TakesFile: true},
		&cli.BoolFlag{Name: "check", Usage: "check the configuration, print what is wrong with it, and exit"},
	}
	for _, o := range options {
		flags = append(flags, o.flag())
	}
	return &cli.Command{
		Name:  "serve",
		Usage: "run the push server",
		Description: "An option can be a flag, a variable of the environment, or a key in the file of --config.\nA " +
			"flag overrides the environment, and the environment overrides the file.",
		Flags: flags,
		// By default the library splits every value at commas: see option.separator.
		DisableSliceFlagSeparator: true,
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return fmt.Errorf("serve takes no arguments, but got %q: set the address with --listen HOST:PORT",
					c.Args().First())
			}
			predecessor, err := handover.Inherited() // which takes its variable out of the environment
			if err != nil {
				return err
			}
			s, err := configure(c, os.Environ(), stderr)
			s.predecessor, s.recipient = predecessor, self(os.Getenv)
			if err == nil {
				err = errors.Join(s.readTokenKeys(), s.proxy.Apply(&s.push))
			}
			s.again = func() (settings, error) {
				next, err := configure(c, os.Environ(), stderr)
				return next, errors.Join(err, next.readTokenKeys())
			}
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

// check makes the preparations of serve without listening.
func check(s settings, stdout io.Writer) error {
	_, _, err := s.prepare() // it cannot see sockets that a service manager passes
	wrong := []error{err}
	s.push.Logger, s.engine.Logger = s.log, s.log
	if s.engine.Loops <= maxLoops { // else prepare has reported it
		engine, err := myriad.Start(s.engine)
		if wrong = append(wrong, err); err == nil {
			wrong = append(wrong, engine.Shutdown(context.Background()))
		}
	}
	s.push.Doors = doors.All(s.doors)
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

// prepare makes the preparations that need neither an engine nor a port. It reports all mistakes.
func (s settings) prepare() (all addresses, certificates *keeper, err error) {
	all, wrong := s.addresses()
	if wrong == nil {
		_, wrong = all.checkExposure(s.push.APIKey, s.push.Authenticates())
	}
	certificates, unread := s.certificates()
	if s.handover != "" {
		wrong = errors.Join(wrong, checkHandoverPath(s.handover))
	}
	return all, certificates, errors.Join(wrong, s.check(), s.cluster.check(), unread)
}

// check reports mistakes in valid values that do not fit together or exceed a limit.
func (s settings) check() error {
	var wrong []error
	if ping := s.push.Timing.Ping; ping < time.Second || ping%time.Second != 0 {
		wrong = append(wrong, fmt.Errorf("--ping-interval %v: it must be whole seconds, at least 1s", ping))
	} else if pong := s.push.Timing.Pong; pong >= ping {
		wrong = append(wrong, fmt.Errorf("--pong-timeout %v: it must be less than --ping-interval, which is %v", pong,
			ping))
	}
	if s.engine.Loops > maxLoops {
		wrong = append(wrong, fmt.Errorf("--loops %d: there may be at most %d", s.engine.Loops, maxLoops))
	}
	switch limit := s.push.Limits; {
	case limit.Publication > maxPublication:
		wrong = append(wrong, fmt.Errorf("--publication-limit %s: it may be at most 8MiB", sizeText(limit.Publication)))
	case limit.Queue < limit.Publication:
		wrong = append(wrong, fmt.Errorf("--queue-limit %s is less than --publication-limit %s: the largest "+
			"publication would not fit, and disconnect every client that it is for", sizeText(limit.Queue),
			sizeText(limit.Publication)))
	}
	return errors.Join(wrong...)
}

// These limits are defined by the engine and package push.
const (
	maxLoops       = 255
	maxPublication = 8 << 20
)

// pingsInKeepAlive is after how many intervals of pings without any the kernel probes a client.
const pingsInKeepAlive = 2

// A running is a server that serve has started.
type running struct {
	settings
	configured settings // before what setUp adds
	addresses
	development bool
	engine      *myriad.Engine
	pusher      *push.Server
	servers     []*web.Server // one per address
	clusterNode *clusterNode  // nil: the server is on its own
	door        *resp.Server  // for clients of Redis; without --redis-listen, for those of another process
	served      bool          // there may be clients

	inherited *os.File // the predecessor's socket of --handover; nil: it has none
	former    string   // the path of that; empty: it has none
}

// serve runs the server until ctx ends, and then shuts it down.
func serve(ctx context.Context, s settings) error {
	caught := catchSignals(s.predecessor != nil)
	defer caught.stop()
	all, certificates, err := s.prepare()
	if err == nil {
		err = s.findPredecessor()
	}
	for _, a := range all.list() {
		if err == nil {
			err = s.inherit(a)
		}
	}
	if err != nil {
		return err
	}
	// again, because inherited sockets are open now
	development, err := all.checkExposure(s.push.APIKey, s.push.Authenticates())
	if err != nil {
		return err
	}
	r, err := setUp(s, all, development)
	if err != nil {
		return err
	}
	u, err := r.run(ctx, caught, certificates)
	err = errors.Join(err, r.shutdown(u))
	if u != nil {
		err = errors.Join(err, u.finish())
		u.stay()
	}
	return err
}

// inherit opens the socket of an inherited address. With a predecessor it may be missing: that one
// may have it. A child of the predecessor has been passed none.
func (s settings) inherit(a *address) error {
	switch {
	case s.predecessor == nil:
		return a.inherit(os.Getenv)
	case a.kind != inheritedAddress:
	case s.byPath:
		a.absent = a.inherit(os.Getenv)
	default:
		a.absent = a.wrong("the process whose place this one takes has no socket of this name: restart the server")
	}
	return nil
}

// setUp creates the engine and the servers, without listening.
func setUp(s settings, all addresses, development bool) (r *running, err error) {
	s.engine.Logger = s.log
	// Pings find clients that have gone. The kernel's probes are for clients that are sent none.
	s.engine.KeepAlive = pingsInKeepAlive * s.push.Timing.Ping
	r = &running{settings: s, configured: s, addresses: all, development: development}
	if r.engine, err = myriad.Start(s.engine); err != nil {
		return nil, err
	}
	r.push.Logger, r.push.Engine = s.log, r.engine
	if development {
		r.push.AllowedOrigins = append(r.push.AllowedOrigins, localOrigins...)
	}
	if r.cluster.inUse() {
		if r.clusterNode, err = r.joinCluster(); err != nil {
			return nil, errors.Join(err, r.engine.Shutdown(context.Background()))
		}
	}
	r.push.Doors = doors.All(s.doors)
	if r.pusher, err = push.New(r.push); err != nil {
		err = errors.Join(err, r.engine.Shutdown(context.Background()))
		return nil, errors.Join(err, r.clusterNode.stop())
	}
	handlers := r.handlers()
	for i, h := range handlers {
		r.servers = append(r.servers, &web.Server{
			Handler: h, Engine: r.engine, Dispatch: web.DispatchAuto, ReadHeaderTimeout: headTimeout,
			IdleTimeout: idleTimeout, Protocols: protocols(i == len(handlers)-1),
			ReadTimeout: s.readTimeout, WriteTimeout: s.writeTimeout, Tunnels: true,
			ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
		})
	}
	r.servers[0].ProxyProtocol = s.balancers
	r.door = redis.Listener(r.pusher, r.engine)
	return r, nil
}

// protocols returns the versions of HTTP that an address speaks. Without TLS, clients of the API
// that speak gRPC begin with HTTP/2.
func protocols(api bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(api)
	return p
}

// handlers returns the handlers of the addresses, in the order of addresses.list: the last one has
// the API.
func (r *running) handlers() []http.Handler {
	if r.admin == nil {
		if r.development {
			return []http.Handler{localHost(withDebug(r.pusher, r.engine))}
		}
		return []http.Handler{r.pusher}
	}
	public, admin := r.pusher.Clients(), r.pusher.Admin()
	if r.development {
		public, admin = localHost(public), withDebug(admin, r.engine)
	}
	if r.push.APIKey == "" { // then programs on this machine alone reach it
		admin = localHost(admin)
	}
	return []http.Handler{public, admin}
}

// run listens and serves. It returns when ctx has ended, or when another process has taken over.
func (r *running) run(ctx context.Context, caught *signals, certificates *keeper) (*upgrader, error) {
	told := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	manager, err := newNotifier(os.Getenv)
	period, unknown := watchdogPeriod(os.Getenv)
	if err = errors.Join(err, unknown); err != nil {
		return nil, err
	}
	defer manager.close()
	socket, bound, redis, err := r.begin(caught, certificates)
	if err != nil {
		return nil, err
	}
	r.served = true
	defer socket.remove() // the path stays if another process has it by then
	go r.followHangups(ctx, caught.hangups, certificates)
	r.announce(bound)
	if redis != nil {
		r.log.Info("myriad: serving clients of Redis", "redis", redis.String())
	}
	u := newUpgrader(ctx, told, r, manager, socket)
	defer u.stop()
	u.follow(caught.upgrades)
	if err := manager.say("READY=1\nSTATUS=serving " + r.urlOf(r.public, bound[0])); err != nil {
		return u, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	go manager.watch(ctx, period, func() bool { return r.isStuck(period / 2) })
	select {
	case <-u.moved:
	case <-ctx.Done():
	}
	u.stop()
	if u.passOn != nil && told.Err() != nil {
		u.passOn() // before this process can end
	}
	_ = manager.say("STOPPING=1") // the server ends in any case
	select {
	case <-u.moved: // no balancer has to know
	default:
		r.awaitBalancers()
	}
	r.log.Info("myriad: shutting down", "timeout", r.shutdownTimeout.String())
	return u, nil
}

// begin takes the place of the predecessor, if there is one, and listens on all addresses. If it
// fails, the predecessor goes on.
func (r *running) begin(caught *signals, certificates *keeper) (socket *handoverSocket, bound []net.Addr,
	redis net.Addr, err error) {
	taken, err := r.take(certificates)
	if err != nil {
		return nil, nil, nil, err
	}
	if bound, redis, err = r.openAll(certificates); err == nil {
		socket, err = r.openHandovers()
	}
	switch {
	case taken == nil:
		_, unclaimed := r.engine.EndInheritance() // of the service manager
		err = errors.Join(err, unclaimed)
	case err == nil:
		err = taken.GoOn()
	}
	if err != nil {
		if taken != nil {
			taken.Drop(err) // which does nothing after GoOn
		}
		socket.remove()
		return nil, nil, nil, err
	}
	if taken != nil {
		caught.tookOver()
		socket.own()
		r.log.Info("myriad: took the place of another process", "connections", taken.Conns())
		if taken.Alone() {
			r.log.Warn("myriad: the other process died before it had sent all connections: the others ended")
		}
		if closed := taken.Unclaimed(); len(closed) > 0 {
			r.log.Warn("myriad: the other process listened on addresses that this one is not told to listen on: "+
				"they are closed", "addresses", strings.Join(closed, ", "))
		}
		r.leaveFormerPath()
	}
	return socket, bound, redis, nil
}

// awaitBalancers gives load balancers the time to see that the server is to end.
func (r *running) awaitBalancers() {
	if r.drainDelay > 0 {
		r.log.Info("myriad: /health answers 503 before the server ends", "delay", r.drainDelay.String())
		r.pusher.Unready()
		time.Sleep(r.drainDelay)
	}
}

// openAll listens on all addresses. It returns those of the web servers, and that of Redis or nil.
func (r *running) openAll(certificates *keeper) (bound []net.Addr, redis net.Addr, err error) {
	for i, a := range r.list() {
		addr, err := r.open(a, r.servers[i], certificates)
		if err != nil {
			return nil, nil, err
		}
		bound = append(bound, addr)
	}
	// again, because the predecessor's inherited sockets are known now
	if _, err = r.checkExposure(r.push.APIKey, r.push.Authenticates()); err != nil {
		return nil, nil, err
	}
	redis, err = r.openRedis(certificates)
	return bound, redis, err
}

// isStuck reports whether a loop has been in one poll cycle for that long.
func (r *running) isStuck(long time.Duration) bool {
	for _, l := range r.engine.Stats().Loops {
		if l.Turn > long {
			return true
		}
	}
	return false
}

// cause returns the system's error in a network error, without the operation and address around it.
func cause(err error) error {
	if operation := (*net.OpError)(nil); errors.As(err, &operation) {
		return operation.Err
	}
	return err
}

// remedy returns what to do about an address on which the server cannot listen, to be appended to
// the error. It may be empty.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ": the folder of the socket does not exist: create it, or let systemd do it with RuntimeDirectory"
	case errors.Is(err, syscall.EADDRINUSE):
		return ": another process has the port: stop it, or listen on another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": this machine does not have the address: use 127.0.0.1 for programs on it, or 0.0.0.0 for all networks"
	case errors.Is(err, syscall.EACCES):
		return ": a port below 1024 needs a privilege: see docs/guides/operate.md, or listen on another port"
	}
	return ""
}

// urlOf returns the URL of the address.
func (r *running) urlOf(a *address, bound net.Addr) string {
	switch {
	case a.isUnix():
		return "unix:" + bound.String()
	case r.tlsCert != "":
		return "https://" + bound.String()
	}
	return "http://" + bound.String()
}

func (r *running) announce(bound []net.Addr) {
	if r.readable != "" {
		r.log.Warn("myriad: every user of this machine can read the secrets in the configuration: chmod o-r", "file",
			r.readable)
	}
	for _, variable := range r.foreign {
		r.log.Info("myriad: passed over a variable of a container platform", "variable", variable)
	}
	r.log.Info("myriad: serving", "url", r.urlOf(r.public, bound[0]), "version", version())
	if r.admin != nil {
		r.log.Info("myriad: serving the API, the metrics and the console", "admin", r.urlOf(r.admin, bound[1]))
	}
	if warning := r.cluster.warning(); warning != "" {
		r.log.Warn("myriad: " + warning)
	}
	for _, warning := range r.risks() {
		r.log.Warn("myriad: " + warning)
	}
	switch {
	case r.development:
		r.log.Warn("myriad: development mode: every program on this machine may connect and publish, no key and no " +
			"token needed; set --api-key (MYRIAD_API_KEY) and --token-secret (MYRIAD_TOKEN_SECRET) before others " +
			"can reach it")
	case r.push.APIKey == "":
		r.log.Warn("myriad: every program on this machine may publish: set --api-key (MYRIAD_API_KEY)")
	case !r.push.Authenticates():
		r.log.Warn("myriad: every program on this machine may connect: set --token-secret (MYRIAD_TOKEN_SECRET)")
	}
}

// minSecret is how many bytes a secret for HS256 must have at least (RFC 7518 §3.2).
const minSecret = 32

// risks returns what the settings allow and an operator may not have meant.
func (s settings) risks() (list []string) {
	if n := len(s.push.TokenSecret); n > 0 && n < minSecret {
		list = append(list, fmt.Sprintf("the token secret has %d bytes, and a short one can be guessed from any "+
			"token: use at least %d, as from openssl rand -hex 32", n, minSecret))
	}
	if s.push.AllowsAnyOrigin() && !s.push.Authenticates() {
		list = append(list, "the allowed origin * lets every web page connect through the browser of a visitor who "+
			"can reach this server: name the origins, or set --token-secret")
	}
	return list
}

// shutdown ends everything in the order of dependencies. It first delivers what has been accepted.
// It resets the connections that do not end in time, which is no error. If another process goes on,
// some may follow to it: see upgrader.settle. u may be nil.
func (r *running) shutdown(u *upgrader) error {
	timeout := r.shutdownTimeout
	switch {
	case !r.served:
		timeout = 0 // what it has got of a predecessor goes on there
	case u != nil && u.given != nil:
		timeout += r.handoverWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r.clusterNode.stepDown(ctx)
	late := r.closeRedis(ctx)
	r.pusher.Drain()
	stopped := make(chan error, len(r.servers))
	go func() {
		u.settle(ctx) // while clients end below that miss what the other process publishes
		for _, h := range r.servers {
			go func() { stopped <- h.Shutdown(ctx) }() // stops listening at once, and waits for running requests
		}
	}()
	err := errors.Join(late, r.pusher.Shutdown(ctx))
	for range r.servers {
		err = errors.Join(err, <-stopped)
	}
	err = errors.Join(err, r.clusterNode.stop())
	left := r.engine.Stats().Conns
	if ctx.Err() != nil {
		for _, h := range r.servers {
			err = errors.Join(err, h.Close())
		}
	}
	err = errors.Join(err, r.engine.Shutdown(ctx)) // resets the remaining connections when ctx ends
	if errors.Is(err, context.DeadlineExceeded) && r.served {
		r.log.Warn("myriad: reset the connections that did not end in time", "connections", left, "timeout",
			r.shutdownTimeout.String())
	}
	if err = without(err, context.DeadlineExceeded); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}

// without returns the errors that err joins, without target.
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
