package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"
)

// socketBytes is what the kernel occupies for one established TCP socket that holds no data, with
// its file and its place in an epoll instance: 3.6 to 3.8 kB by the slab caches of Linux 6.18.
const socketBytes = 3800

// A model says what machine it takes to reach the figures of the C10M problem, from what was
// measured of one core. It multiplies; it knows nothing of what many cores cost each other but
// the efficiency that it is given.
type model struct {
	connections float64 // held at the same time; each of them new once in ten seconds
	cores       float64 // of the machine that is asked about
	efficiency  float64 // the part of each core that is left when all of them work: assumed, not measured
}

// tenMillion is the problem as it was stated in 2013: ten million connections, a million new ones
// a second, ten cores.
var tenMillion = model{connections: 10_000_000, cores: 10, efficiency: 0.8}

// A line is one of the problem's figures.
type line struct {
	what     string
	scenario string // where the input is measured
	server   string
	metric   string
	// answer says the target, what one core showed here, and what the target takes by the model.
	answer func(m model, s summary) (target, here, takes string)
	bound  string
}

// A summary is a server's medians by metric.
type summary map[string]spread

func (s summary) median(metric string) float64 { return s[metric].Median }

var modelLines = []line{
	{"WebSockets held", "idle-ws", "websocket", "conn_bytes", memory,
		"the kernel's memory for sockets, and how many files it allows"},
	{"subscribers held", "push-idle", "push", "conn_bytes", memory, "the same"},
	{"new WebSockets a second", "ws-connect", "websocket", "cpu_us", perSecond(0.1, 1),
		"the kernel's handshake, and one accept queue for each listener"},
	{"seconds until all have a message", "push-broadcast", "push", "cpu_us", untilAll,
		"a call of the kernel for each socket"},
	{"bytes a second, by messages of 1 KiB", "ws-echo-1k", "websocket-inline", "cpu_us", bytesPerSecond,
		"two calls of the kernel for each message; larger messages cost less for each byte"},
	{"packets a second", "engine-echo", "engine", "cpu_us", perSecond(1, 2),
		"the kernel's TCP; beyond it lie drivers in user space"},
	{"HTTP requests a second", "http-100", "web", "cpu_us", perSecond(1, 1), "the same"},
	{"latency, µs", "http-rate", "web", "p50_ms", microseconds("p50_ms", ""),
		"waking a thread, twice; it takes busy polling and a card that is read without the kernel"},
	{"jitter, µs", "http-rate", "web", "p999_ms", microseconds("p999_ms", "p50_ms"),
		"the kernel's scheduler, and collections of garbage"},
	{"cores used well", "http-100", "web", "rate", wellUsed,
		"shared caches, locks of the kernel, interrupts on one core"},
}

func memory(m model, s summary) (target, here, takes string) {
	each := s.median("conn_bytes")
	return grouped(m.connections, 0), fmt.Sprintf("%.0f B, and %d B of the kernel", each, socketBytes),
		fmt.Sprintf("%.0f GB", m.connections*(each+socketBytes)/1e9)
}

// perSecond is for a rate of part for each connection held, where the server's CPU time was
// measured for so many of them at once.
func perSecond(part, at float64) func(m model, s summary) (target, here, takes string) {
	return func(m model, s summary) (target, here, takes string) {
		return m.rate(m.connections*part, s.median("cpu_us")/at)
	}
}

func (m model) rate(target, us float64) (string, string, string) {
	return grouped(target, 0), grouped(1e6/us, 0), m.coresFor(target * us / 1e6)
}

// coresFor is how many cores are busy with so many seconds of CPU time in each second.
func (m model) coresFor(busy float64) string {
	return fmt.Sprintf("%.0f cores; %.0f at %.0f %%", busy, busy/m.efficiency, 100*m.efficiency)
}

func untilAll(m model, s summary) (target, here, takes string) {
	us := s.median("cpu_us")
	return "1", grouped(1e6/us, 0) + " a second", fmt.Sprintf("%.1f s on %.0f cores",
		m.connections*us/1e6/m.cores/m.efficiency, m.cores)
}

// bytesPerSecond counts the bytes that are sent, and not those of the question.
func bytesPerSecond(m model, s summary) (target, here, takes string) {
	us := s.median("cpu_us") / 1024
	wanted := m.connections * 1000
	return fmt.Sprintf("%.0f GB", wanted/1e9), fmt.Sprintf("%.0f MB", 1/us), m.coresFor(wanted * us / 1e6)
}

// microseconds is a latency less another one, at ten thousand requests a second.
func microseconds(metric, less string) func(m model, s summary) (target, here, takes string) {
	return func(_ model, s summary) (target, here, takes string) {
		us := 1000 * (s.median(metric) - s.median(less))
		return "10", fmt.Sprintf("%.0f, both ends", us), fmt.Sprintf("%.0f times the target", us/10)
	}
}

func wellUsed(m model, s summary) (target, here, takes string) {
	return strconv.FormatFloat(m.cores, 'f', -1, 64), fmt.Sprintf("1 of 2: the driver has the other (%s requests)",
		grouped(s.median("rate"), 0)), fmt.Sprintf("assumed: %.0f %% of each", 100*m.efficiency)
}

var modelHead = []string{"", "target", "one core, measured", "what the target takes", "bound by", "measured by"}

// rows are the lines whose input was measured; the others say that it was not.
func (m model) rows(all []*results) (rows [][]string) {
	for _, l := range modelLines {
		row := []string{l.what, absent, absent, absent, l.bound, l.scenario + ", " + l.server}
		if s := l.input(all); s != nil {
			row[1], row[2], row[3] = l.answer(m, s)
		}
		rows = append(rows, row)
	}
	return rows
}

func (l line) input(all []*results) summary {
	o := finder(all)(l.scenario)
	if o == nil {
		return nil
	}
	s := o.find(l.server)
	if s == nil {
		return nil
	}
	if _, ok := s.Summary[l.metric]; !ok {
		return nil
	}
	return s.Summary
}

func (m model) markdown(all []*results) string {
	var b strings.Builder
	b.WriteString("\n" + markdownRow(modelHead) + markdownRow([]string{"---", "--:", "--:", "--:", "---", "---"}))
	for _, row := range m.rows(all) {
		b.WriteString(markdownRow(row))
	}
	return b.String() + "\n"
}

func (m model) valid() error {
	switch {
	case !(m.connections >= 1):
		return fmt.Errorf("--connections is %v: it has to be 1 or more", m.connections)
	case !(m.cores >= 1):
		return fmt.Errorf("--cores is %v: it has to be 1 or more", m.cores)
	case !(m.efficiency > 0 && m.efficiency <= 1):
		return fmt.Errorf("--efficiency is %v: it has to be more than 0, and at most 1", m.efficiency)
	}
	return nil
}

func modelCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "model",
		Usage: "say what machine ten million connections take, from saved results of one core",
		Flags: []cli.Flag{
			&cli.FloatFlag{Name: "connections", Value: tenMillion.connections, Usage: "held at the same time"},
			&cli.FloatFlag{Name: "cores", Value: tenMillion.cores, Usage: "of the machine that is asked about"},
			&cli.FloatFlag{Name: "efficiency", Value: tenMillion.efficiency,
				Usage: "the part of each core that is left when all of them work; an assumption"},
		},
		Action: func(_ context.Context, c *cli.Command) error {
			m := model{c.Float("connections"), c.Float("cores"), c.Float("efficiency")}
			all, err := readAll(c.Args().Slice())
			if err := errors.Join(m.valid(), err); err != nil {
				return err
			}
			_, err = io.WriteString(stdout, m.markdown(all))
			return err
		},
	}
}
