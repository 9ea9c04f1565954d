package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// resultsFormat changes when older files can no longer be read.
const resultsFormat = "myriad-bench/1"

// results are what one run has shown; their JSON is what --json prints, --save keeps and report
// reads.
type results struct {
	Format    string    `json:"format"`
	Began     time.Time `json:"began"`
	Machine   machine   `json:"machine"`
	Rounds    int       `json:"rounds"`
	Duration  string    `json:"duration"`
	Scenarios []outcome `json:"scenarios"`
}

type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// An outcome is a scenario's part. If Skipped says why it could not run, there are no servers in
// it.
type outcome struct {
	Name        string          `json:"name"`
	Rows        string          `json:"rows"`
	Asks        string          `json:"asks"`
	Mode        string          `json:"mode"`
	Connections int             `json:"connections"` // really
	Wanted      int             `json:"wanted_connections"`
	Rate        float64         `json:"rate,omitempty"`
	Slow        int             `json:"slow_percent,omitempty"`
	Attack      string          `json:"attack,omitempty"`
	Publishers  int             `json:"publishers,omitempty"`
	Work        string          `json:"work,omitempty"` // what was done, if not by connections
	Drivers     int             `json:"driver_processes"`
	Reference   string          `json:"reference,omitempty"`
	Measures    []string        `json:"measures"`
	Ratios      []string        `json:"ratios,omitempty"`
	Skipped     string          `json:"skipped,omitempty"`
	Warnings    []string        `json:"warnings,omitempty"`
	Servers     []serverOutcome `json:"servers"`
}

// A serverOutcome has either Refused, which says why the server was not measured, or figures.
type serverOutcome struct {
	Name    string            `json:"name"`
	Ours    bool              `json:"ours"`
	Refused string            `json:"refused,omitempty"`
	Rounds  []sample          `json:"rounds,omitempty"`
	Course  course            `json:"course,omitempty"` // of the first round
	Summary map[string]spread `json:"summary,omitempty"`
	Ratio   map[string]spread `json:"ratio,omitempty"` // to the reference, pairs of rounds
}

// A course is how many connections were held in the course of a turn: pairs of seconds and a
// number. In JSON it is a text, "1 500, 2 800": a list would be a line for each number.
type course [][2]float64

// MarshalText implements encoding.TextMarshaler.
func (c course) MarshalText() (text []byte, _ error) {
	for i, point := range c {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = fmt.Appendf(text, "%g %.0f", point[0], point[1])
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *course) UnmarshalText(text []byte) error {
	*c = nil
	if len(text) == 0 {
		return nil
	}
	for part := range strings.SplitSeq(string(text), ", ") {
		seconds, number, _ := strings.Cut(part, " ")
		x, err1 := strconv.ParseFloat(seconds, 64)
		y, err2 := strconv.ParseFloat(number, 64)
		if err := errors.Join(err1, err2); err != nil || !(x >= 0 && y >= 0) {
			return fmt.Errorf("a course has %q, and not seconds and a number", part)
		}
		*c = append(*c, [2]float64{x, y})
	}
	return nil
}

func thisMachine() machine {
	m := machine{CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}

func (r *results) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

func (r *results) save(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := r.write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func readResults(name string) (*results, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r results
	if err := json.NewDecoder(f).Decode(&r); err != nil {
		return nil, fmt.Errorf("%s is not a file of results: %w", name, err)
	}
	if r.Format != resultsFormat {
		return nil, fmt.Errorf("%s has the format %q; this program reads %q", name, r.Format, resultsFormat)
	}
	for i := range r.Scenarios { // what follows from the rounds is made anew, so that a file need not hold it
		r.Scenarios[i].summarise()
	}
	return &r, nil
}
