package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad/bench/proc"
)

const (
	// ownFiles is the part of its files, one in so many, that a server has for other things than
	// connections. Those that bound their connections by themselves keep about as much free.
	ownFiles = 16
	// fewest connections make it worth running what wants as many as there can be.
	fewest = 1000
)

// A selection is what the command line asks for.
type selection struct {
	scenarios     []string // none: all
	skipped       []string // of them
	only, without []string // servers
	foreign       []string // name=path
	conns         int      // 0: the scenario's
	rounds        int
	duration      time.Duration
	patience      time.Duration // 0: none
	times         int           // 0: as often as the scenario says, where something is done so many times
}

// A planned scenario has its servers and its connections settled, or says why it cannot run.
type planned struct {
	scenario
	turns []server // in the order in which they take turns
	want  int
	skip  string
}

func (s selection) plan() ([]planned, error) {
	if s.rounds < 1 || s.duration <= 0 || s.conns < 0 || s.times < 0 {
		return nil, fmt.Errorf("--rounds %d, --duration %v, --conns %d, --times %d: they must be positive", s.rounds,
			s.duration, s.conns, s.times)
	}
	foreign, err := s.foreignServers()
	if err != nil {
		return nil, err
	}
	if err := s.known(append(slices.Clone(servers), foreign...)); err != nil {
		return nil, err
	}
	files, err := proc.RaiseFiles()
	if err != nil {
		return nil, err
	}
	var all []planned
	for _, sc := range scenarios {
		if len(s.scenarios) > 0 && !slices.Contains(s.scenarios, sc.name) || slices.Contains(s.skipped, sc.name) {
			continue
		}
		all = append(all, s.settle(sc, foreign, files-files/ownFiles))
	}
	return all, nil
}

func (s selection) foreignServers() ([]server, error) {
	var all []server
	for _, text := range s.foreign {
		name, program, ok := strings.Cut(text, "=")
		if !ok || name == "" || program == "" {
			return nil, fmt.Errorf("--server %q is not name=path", text)
		}
		if slices.ContainsFunc(servers, func(s server) bool { return s.name == name }) {
			return nil, fmt.Errorf("--server %q: there is a server of that name", text)
		}
		all = append(all, server{name: name, program: program, foreign: true})
	}
	return all, nil
}

// known fails for names that are not there, so that a slip does not measure something else.
func (s selection) known(all []server) error {
	for _, name := range slices.Concat(s.scenarios, s.skipped) {
		if !slices.ContainsFunc(scenarios, func(sc scenario) bool { return sc.name == name }) {
			return fmt.Errorf("there is no scenario %q: see list", name)
		}
	}
	for _, name := range slices.Concat(s.only, s.without) {
		if !slices.ContainsFunc(all, func(x server) bool { return x.name == name }) {
			return fmt.Errorf("there is no server %q: see list", name)
		}
	}
	return nil
}

func (s selection) settle(sc scenario, foreign []server, most int) planned {
	p := planned{scenario: sc, want: sc.conns}
	for _, x := range servers {
		if slices.Contains(sc.servers, x.name) && s.takes(x) {
			p.turns = append(p.turns, x)
		}
	}
	slices.SortStableFunc(p.turns, func(a, b server) int {
		return slices.Index(sc.servers, a.name) - slices.Index(sc.servers, b.name)
	})
	for _, x := range foreign {
		if s.takes(x) {
			p.turns = append(p.turns, x)
		}
	}
	if p.mode == working {
		p.order.Times = s.share(p.order.Times)
	} else if s.conns > 0 {
		p.conns, p.want = s.conns, s.conns
	}
	if p.conns == many && most >= fewest {
		p.conns = min(p.conns, most)
	}
	if p.mode == crowding {
		p.drivers = crowdProcesses(p.conns, most)
		most *= p.drivers // each has a server of its own
	}
	switch {
	case len(p.turns) == 0:
		p.skip = "none of its servers is among those asked for"
		return p
	case p.conns > most:
		p.skip = fmt.Sprintf("%d connections need as many files in one process, and the limit (ulimit -Hn) leaves %d",
			p.conns, max(most, 0))
	}
	p.drivers = min(max(p.drivers, 1), max(p.conns, 1))
	if !slices.ContainsFunc(p.turns, func(x server) bool { return x.name == p.reference }) {
		p.reference = p.turns[0].name
	}
	return p
}

// share is how often something is done.
func (s selection) share(times int) int {
	if s.times > 0 {
		return s.times
	}
	return times
}

func (s selection) takes(x server) bool {
	return !slices.Contains(s.without, x.name) && (len(s.only) == 0 || slices.Contains(s.only, x.name))
}

// errNothing is the end of a run without a figure.
var errNothing = errors.New("nothing could be measured")
