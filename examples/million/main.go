//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// settings are what the flags say.
type settings struct {
	connections int
	each        int           // connections of a process
	hold        time.Duration // between the first publication and the second, in which all are pinged
	limit       time.Duration // of the whole run
	reserve     uint64        // bytes of memory that must stay free
	paced       bool          // connections open as fast as the servers keep up, and as many as the machine holds
	asked       int           // connections, before preflight made them fewer
	short       []string      // why it did
	program     string        // myriad; empty: it is built
	worker      []string      // the command of a load process, without the number of its group
	progress    io.Writer
}

// workerFlag makes this program a load process. The number of its process group follows.
const workerFlag = "--worker-of-group"

func main() {
	if len(os.Args) == 3 && os.Args[1] == workerFlag {
		if err := work(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "million: a load process:", err)
			os.Exit(1)
		}
		return
	}
	s := settings{worker: []string{os.Args[0]}, progress: os.Stderr}
	flag.IntVar(&s.connections, "connections", 1_000_000, "`COUNT` of subscribers")
	flag.IntVar(&s.each, "each", 0, "`COUNT` of connections of a process; 0: what the limit on descriptors allows")
	flag.DurationVar(&s.hold, "hold", 0, "`TIME` for which all are held; in it the servers ping each once; 0: a "+
		"minute for each 250,000")
	flag.DurationVar(&s.limit, "limit", 20*time.Minute, "`TIME` after which the run is ended")
	flag.Uint64Var(&s.reserve, "reserve", 3<<30, "`BYTES` of memory that must stay free, or the run is ended")
	flag.StringVar(&s.program, "myriad", "", "`FILE` of the program myriad; empty: it is built")
	file := flag.String("json", "", "write the figures to `FILE` as JSON")
	pace := flag.String("pace", "auto", "`HOW` connections are opened. auto: as fast as the servers keep up, and as "+
		"many as this machine holds. off: as fast as possible, all or none")
	flag.Parse()
	if *pace != "auto" && *pace != "off" {
		fmt.Fprintf(os.Stderr, "million: --pace %q: use auto or off\n", *pace)
		os.Exit(2)
	}
	s.paced = *pace == "auto"
	if s.hold == 0 {
		s.hold = holdFor(s.connections)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := run(ctx, s)
	stop()
	if o != nil {
		o.writeText(os.Stdout)
		err = errors.Join(err, o.save(*file))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "million:", err)
		os.Exit(1)
	}
}

// holdFor is long enough for pings: at 4,000 a second two processors answer each in time, while
// they deliver a publication.
func holdFor(connections int) time.Duration {
	return max(time.Minute, time.Duration(connections)*time.Minute/250_000)
}

// work is the life of a load process.
func work(group string) error {
	id, err := strconv.Atoi(group)
	if err != nil {
		return err
	}
	if err := syscall.Setpgid(0, id); err != nil {
		return fmt.Errorf("joining process group %d: %w", id, err)
	}
	return load.Work(os.Stdin, os.Stdout)
}

// run makes a run. Whatever happens, no process is left when it returns.
func run(ctx context.Context, s settings) (o *outcome, err error) {
	// The kernel kills a server when the thread ends that has started it: see family.start.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.asked = s.connections
	if err := preflight(&s); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("the run has taken %s: see --limit", s.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "million")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if s.program == "" {
		if s.program, err = build(ctx, dir); err != nil {
			return nil, err
		}
	}
	broker, err := startBroker(filepath.Join(dir, "nats"))
	if err != nil {
		return nil, err
	}
	defer broker.stop()
	f := &family{progress: s.progress}
	defer func() { err = errors.Join(err, f.end()) }()
	if err := f.start(ctx, s, broker.url); err != nil {
		return nil, err
	}
	return s.measure(ctx, f)
}

// build makes the program myriad of this source.
func build(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "myriad")
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/myriad-go/myriad/server/cmd/myriad")
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building myriad, within the repository: %w\n%s", err, text)
	}
	return program, nil
}

// processes is how many servers there are, and how many load processes.
func (s *settings) processes() int { return (s.connections + s.each - 1) / s.each }

const (
	sourcesEach = 4  // addresses of a load process
	openingEach = 24 // connections that a load process opens at a time
	// settle is how long before the second publication the memory is read.
	settle = time.Second
	// patience is how long a connection may take to open, and the publication to reach the last.
	patience = time.Minute
	// stall is how long connections may become hardly more before a paced run goes on with those
	// that it has.
	stall = time.Minute
)

// plan is the load. A first publication leaves as soon as all are connected, and warms up; the
// second one, after hold, counts.
func (s *settings) plan(addresses []string) load.Plan {
	p := load.Plan{Kind: load.Push, URL: "http://" + addresses[0], Addresses: addresses, Connections: s.connections,
		Rate: 1 / s.hold.Seconds(), Warmup: s.hold - settle, Duration: 2 * settle, Timeout: patience,
		Opening: openingEach, Pace: s.paced, Loops: 1}
	for i := range s.processes() {
		for k := range sourcesEach {
			p.Sources = append(p.Sources, fmt.Sprintf("127.%d.%d.%d", 20+i/250, i%250, k+1))
		}
	}
	return p
}

// measure loads the servers.
func (s *settings) measure(ctx context.Context, f *family) (*outcome, error) {
	w := &watch{family: f, reserve: s.reserve, progress: s.progress}
	if err := w.begin(); err != nil {
		return nil, err
	}
	options := load.Options{Workers: s.processes(), Command: slices.Concat(together, []string{"env", oneProcessor},
		s.worker, []string{workerFlag, strconv.Itoa(f.group())}), Watch: w.show, Stall: s.limit}
	if s.paced {
		options.Stall = stall
	}
	watched := make(chan error, 1)
	over, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { watched <- w.run(ctx, over) }()
	r, err := load.Run(context.WithoutCancel(ctx), s.plan(f.addresses()), options)
	stop()
	// If the watch has ended the run, the load has failed for that reason.
	if err = cmp.Or(<-watched, err); err != nil {
		return nil, err
	}
	return newOutcome(s, r, w), nil
}

func (o *outcome) save(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
