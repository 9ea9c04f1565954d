package main

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/myriad-go/myriad/server/load"
	"github.com/urfave/cli/v3"
)

// workerArgument makes this program a worker of a load, when it is the argument after "load". It is
// not for people.
const workerArgument = "--worker"

func loadCommand(stdout, stderr io.Writer) *cli.Command {
	kinds := []*cli.Command{
		kindCommand(stdout, stderr, "http", "URL", "requests and their replies", httpFlags, httpPlan),
		kindCommand(stdout, stderr, "ws", "URL", "WebSocket messages that the server sends back, or on to others",
			socketFlags, socketPlan),
		kindCommand(stdout, stderr, "push", "URL", "publications to subscribers of a push server", pushFlags,
			pushPlan),
		kindCommand(stdout, stderr, "arrivals", "URL", "subscribers of a push server that come, subscribe and leave",
			arrivalFlags, arrivalPlan),
		kindCommand(stdout, stderr, "redis", "HOST:PORT", "commands of the Redis protocol", redisFlags, redisPlan),
	}
	return &cli.Command{
		Name:     "load",
		Usage:    "make load on a server, and measure it",
		Commands: kinds,
		Description: "myriad load http http://127.0.0.1:8000/ --connections 1000 --duration 10s\n" +
			"myriad load push http://127.0.0.1:8000 --connections 10000 --rate 50\n\n" +
			"Only servers on this machine are loaded, unless you say --yes-i-own-this.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "join",
				Usage: "work for the load that `HOST:PORT` of another host directs, with its --secret"},
			&cli.StringFlag{Name: "secret", Usage: "`SECRET` of --join", Sources: cli.EnvVars("MYRIAD_LOAD_SECRET")},
			&cli.BoolFlag{Name: "worker", Hidden: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			switch {
			case c.Bool("worker"):
				return load.Work(os.Stdin, stdout)
			case c.String("join") != "":
				return load.Join(ctx, c.String("join"), c.String("secret"))
			case c.Args().Present():
				return fmt.Errorf("there is no kind of load %q: use http, ws, push, arrivals or redis",
					c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

// commonFlags are those of every kind of load.
func commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "connections", Aliases: []string{"c"}, Value: 100, Usage: "`COUNT` of connections"},
		&cli.FloatFlag{Name: "rate",
			Usage: "`COUNT` of requests or publications that are due each second; without it each " +
				"connection sends its next when it has the last reply"},
		&cli.DurationFlag{Name: "duration", Aliases: []string{"d"}, Value: 10 * time.Second,
			Usage: "`TIME` that counts"},
		&cli.DurationFlag{Name: "warmup", Value: time.Second, Usage: "`TIME` of load before it counts"},
		&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second,
			Usage: "`TIME` for a connection to open or a reply to come"},
		&cli.DurationFlag{Name: "open-timeout", Value: 5 * time.Minute,
			Usage: "`TIME` for all connections to open; then, or when they have become hardly more for 30 s, " +
				"the run goes on with those that did"},
		&cli.StringSliceFlag{Name: "source",
			Usage: "local `ADDRESS` to connect from; may be repeated, each has 28,000 ports or so"},
		&cli.StringSliceFlag{Name: "header", Aliases: []string{"H"},
			Usage: "`HEADER` of requests, as in 'Name: value'; may be repeated"},
		&cli.BoolFlag{Name: "insecure", Usage: "accept any certificate"},
		&cli.BoolFlag{Name: "pace", Usage: "open connections only as fast as the server keeps up"},
		&cli.IntFlag{Name: "loops", Usage: "`COUNT` of event loops of each process; 0: one for each two processors"},
		&cli.IntFlag{Name: "workers", Usage: "`COUNT` of processes that make the load; 0: this one alone"},
		&cli.IntFlag{Name: "hosts",
			Usage: "`COUNT` of other hosts to wait for, where myriad load --join was started"},
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:7700", Usage: "`HOST:PORT` at which --hosts join"},
		&cli.StringFlag{Name: "secret", Usage: "`SECRET` that --hosts must have, 16 bytes at least",
			Sources: cli.EnvVars("MYRIAD_LOAD_SECRET")},
		&cli.StringFlag{Name: "json", Usage: "write the report to `FILE` as JSON", TakesFile: true},
		&cli.StringFlag{Name: "html", Usage: "write the report to `FILE` as a page with charts", TakesFile: true},
		&cli.StringFlag{Name: "compare", Usage: "compare with the report in `FILE`, written by --json",
			TakesFile: true},
		&cli.StringSliceFlag{Name: "fail-if",
			Usage: "fail if `CONDITION` holds, as in 'p99>50ms' or 'errors>0'; may be repeated"},
		&cli.StringFlag{Name: "debug-listen",
			Usage: "serve expvar and pprof of this process at `HOST:PORT` while it runs"},
		&cli.BoolFlag{Name: "yes-i-own-this", Usage: "load a server on another machine, which is yours to load"},
		&cli.BoolFlag{Name: "quiet", Usage: "show the report only"},
	}
}

func kindCommand(stdout, stderr io.Writer, name, argument, usage string, own func() []cli.Flag,
	plan func(*cli.Command) load.Plan) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: argument, Flags: append(own(), commonFlags()...),
		DisableSliceFlagSeparator: true,
		OnUsageError: func(_ context.Context, c *cli.Command, err error,
			_ bool) error {
			return explainUsage(c, err)
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return fmt.Errorf("%s takes one argument, %s", c.FullName(), argument)
			}
			p := plan(c)
			p.Connections, p.Rate, p.Duration, p.Warmup = c.Int("connections"), c.Float("rate"),
				c.Duration("duration"), c.Duration("warmup")
			p.Timeout, p.Sources, p.Header = c.Duration("timeout"), c.StringSlice("source"), c.StringSlice("header")
			p.Insecure, p.Loops, p.Pace = c.Bool("insecure"), c.Int("loops"), c.Bool("pace")
			return runLoad(ctx, c, p, stdout, stderr)
		},
	}
}

func httpFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "method", Aliases: []string{"X"},
			Usage: "`METHOD` of requests; GET, or POST with --body"},
		&cli.StringFlag{Name: "body", Usage: "`TEXT` to send; @FILE: what a file holds"},
		&cli.IntFlag{Name: "pipeline", Value: 1, Usage: "`COUNT` of requests that are sent at once on a connection"},
		&cli.BoolFlag{Name: "http2", Usage: "speak HTTP/2: with https by ALPN, with http by prior knowledge"},
		&cli.IntFlag{Name: "streams", Value: 1, Usage: "`COUNT` of requests under way on a connection of HTTP/2"},
	}
}

func httpPlan(c *cli.Command) load.Plan {
	return load.Plan{Kind: load.HTTP, URL: c.Args().First(), Method: c.String("method"), Body: c.String("body"),
		Pipeline: c.Int("pipeline"), HTTP2: c.Bool("http2"), Streams: c.Int("streams")}
}

func socketFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "size", Value: 128, Usage: "`BYTES` of a message"},
		&cli.BoolFlag{Name: "idle", Usage: "send nothing: only hold the connections"},
		&cli.StringFlag{Name: "message", Usage: "`TEXT` to send in place of --size letters; @FILE: what a file holds"},
		&cli.IntFlag{Name: "rooms", Usage: "`COUNT` of rooms over which connections are spread; one connection more " +
			"for each sends --message, with its {id}, to the others. {room} and {n} in the URL, --message and --join " +
			"are the numbers of the room and of the connection"},
		&cli.StringFlag{Name: "join", Usage: "`TEXT` that each connection sends first, with --rooms"},
	}
}

func socketPlan(c *cli.Command) load.Plan {
	p := load.Plan{Kind: load.Echo, URL: c.Args().First(), Size: c.Int("size"), Message: c.String("message"),
		Join: c.String("join")}
	switch {
	case c.Bool("idle"):
		p.Kind = load.Idle
	case c.IsSet("rooms"):
		p.Kind, p.Protocol, p.Channels = load.Push, load.Rooms, c.Int("rooms")
	}
	return p
}

func pushFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "size", Value: 128, Usage: "`BYTES` of a publication"},
		&cli.StringFlag{Name: "protocol", Value: string(load.Centrifuge),
			Usage: "`NAME` of the subscribers' protocol: centrifuge, sse or mercure"},
		&cli.IntFlag{Name: "channels", Value: 1, Usage: "`COUNT` of channels; each has a publisher of its own"},
		&cli.StringFlag{Name: "prefix", Value: "load",
			Usage: "what the `NAMES` of channels begin with; a number follows"},
		&cli.StringFlag{Name: "api-key", Usage: "`KEY` of publishers", Sources: cli.EnvVars("MYRIAD_API_KEY")},
		&cli.StringFlag{Name: "token", Usage: "`TOKEN` of subscribers"},
		&cli.BoolFlag{Name: "recover", Usage: "subscribers that come back ask for what they have missed"},
		&cli.BoolFlag{Name: "retry", Usage: "publishers make a publication again, with an idempotency key, that was " +
			"refused with status 503 or lost its connection"},
		&cli.DurationFlag{Name: "storm",
			Usage: "close all subscribers' connections each `TIME`, and measure until all are back"},
	}
}

func pushPlan(c *cli.Command) load.Plan {
	return load.Plan{Kind: load.Push, URL: c.Args().First(), Size: c.Int("size"),
		Protocol: load.Protocol(c.String("protocol")),
		Channels: c.Int("channels"), Prefix: c.String("prefix"), Key: c.String("api-key"), Token: c.String("token"),
		Recover: c.Bool("recover"), Retry: c.Bool("retry"), Storm: c.Duration("storm")}
}

func arrivalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "protocol", Value: string(load.Centrifuge),
			Usage: "`NAME` of the subscribers' protocol: centrifuge, sse or mercure"},
		&cli.IntFlag{Name: "channels", Value: 1, Usage: "`COUNT` of channels over which they are spread"},
		&cli.StringFlag{Name: "prefix", Value: "load",
			Usage: "what the `NAMES` of channels begin with; a number follows"},
		&cli.StringFlag{Name: "token", Usage: "`TOKEN` of subscribers"},
	}
}

// arrivalPlan has --rate arrivals a second, of which --connections are under way at a time at most.
func arrivalPlan(c *cli.Command) load.Plan {
	return load.Plan{Kind: load.Arrivals, URL: c.Args().First(), Protocol: load.Protocol(c.String("protocol")),
		Channels: c.Int("channels"), Prefix: c.String("prefix"), Token: c.String("token")}
}

func redisFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "command",
			Usage: "`COMMAND` to send, its words separated by spaces; SET key:1 and a value by default"},
		&cli.IntFlag{Name: "size", Value: 128, Usage: "`BYTES` of the value that SET sends"},
		&cli.IntFlag{Name: "pipeline", Value: 1, Usage: "`COUNT` of commands that are sent at once on a connection"},
	}
}

func redisPlan(c *cli.Command) load.Plan {
	return load.Plan{Kind: load.Redis, URL: "redis://" + strings.TrimPrefix(c.Args().First(), "redis://"),
		Size:     c.Int("size"),
		Pipeline: c.Int("pipeline"), Command: strings.Fields(c.String("command"))}
}

// runLoad makes the load, shows it, and judges it.
func runLoad(ctx context.Context, c *cli.Command, p load.Plan, stdout, stderr io.Writer) error {
	for _, text := range []*string{&p.Body, &p.Message} {
		if file, is := strings.CutPrefix(*text, "@"); is {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			*text = string(content)
		}
	}
	if !c.Bool("yes-i-own-this") {
		if err := load.Guard(ctx, p); err != nil {
			return err
		}
	}
	limits, before, err := judges(c, p)
	if err != nil {
		return err
	}
	o, err := loadOptions(ctx, c, stderr)
	if err != nil {
		return err
	}
	view, width := load.NewView(stderr, 0), 0
	if f, is := stderr.(*os.File); is && term.IsTerminal(int(f.Fd())) {
		if width, _, err = term.GetSize(int(f.Fd())); err == nil {
			view = load.NewView(stderr, width)
		}
	}
	if !c.Bool("quiet") {
		o.Watch = view.Show
	}
	if at := c.String("debug-listen"); at != "" {
		stop, err := serveDebug(at, &o)
		if err != nil {
			return err
		}
		defer stop()
	}
	r, err := load.Run(ctx, p, o)
	if err != nil {
		return err
	}
	view.Clear()
	var useless error
	if r.NoEcho() != "" {
		useless = errors.New("nothing was measured: the server is no echo")
	}
	return errors.Join(publishReport(c, r, before, stdout), failures(limits, r), useless)
}

// judges reads what the report is compared with, before the load is made.
func judges(c *cli.Command, p load.Plan) (limits []load.Limit, before *load.Report, err error) {
	for _, text := range c.StringSlice("fail-if") {
		limit, err := load.ParseLimit(text)
		if err == nil {
			err = limit.Applies(p)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--fail-if: %w", err)
		}
		limits = append(limits, limit)
	}
	if file := c.String("compare"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		before = new(load.Report)
		if err := json.Unmarshal(text, before); err != nil {
			return nil, nil, fmt.Errorf("--compare %s: %w", file, err)
		}
	}
	return limits, before, nil
}

func failures(limits []load.Limit, r *load.Report) error {
	var failed []error
	for _, l := range limits {
		if err := l.Check(r); err != nil {
			failed = append(failed, fmt.Errorf("--fail-if %w", err))
		}
	}
	return errors.Join(failed...)
}

// loadOptions gathers the workers.
func loadOptions(ctx context.Context, c *cli.Command, stderr io.Writer) (load.Options, error) {
	o := load.Options{Workers: c.Int("workers"), OpenTimeout: c.Duration("open-timeout")}
	if o.Workers > 0 {
		self, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.Command = []string{self, "load", workerArgument}
	}
	if n := c.Int("hosts"); n > 0 {
		ln, err := net.Listen("tcp", c.String("listen"))
		if err != nil {
			return o, err
		}
		defer ln.Close()
		fmt.Fprintf(stderr, "waiting for %d hosts: start myriad load --join %s on them\n", n, ln.Addr())
		if o.Hosts, err = load.Muster(ctx, ln, c.String("secret"), n); err != nil {
			return o, err
		}
	}
	return o, nil
}

// publishReport writes the report wherever it was asked for.
func publishReport(c *cli.Command, r, before *load.Report, stdout io.Writer) error {
	if err := r.WriteText(stdout); err != nil {
		return err
	}
	if before != nil {
		fmt.Fprintf(stdout, "\n")
		if err := load.WriteComparison(stdout, before, r); err != nil {
			return err
		}
	}
	if file := c.String("json"); file != "" {
		text, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(file, append(text, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if file := c.String("html"); file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		return errors.Join(r.WriteHTML(f), f.Close())
	}
	return nil
}

// serveDebug serves expvar and pprof, which register themselves with http.DefaultServeMux.
func serveDebug(at string, o *load.Options) (stop func(), err error) {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	var latest atomic.Pointer[load.Progress]
	if expvar.Get("load") == nil {
		expvar.Publish("load", expvar.Func(func() any { return latest.Load() }))
	}
	watch := o.Watch
	o.Watch = func(p load.Progress) {
		if watch != nil {
			watch(p)
		}
		p.Total = nil // the run goes on adding to it
		latest.Store(&p)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/vars", expvar.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: headTimeout}
	go func() { _ = s.Serve(ln) }() // Close ends it
	return func() { _ = s.Close() }, nil
}
