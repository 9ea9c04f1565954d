package httpscript

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the output that comes into the files of testdata")

// A Case is a session.
type Case struct {
	Name     string
	Commands []*Command
}

// A Command is a line of a case, with the output that is to come of it.
type Command struct {
	Verb string
	Args []string

	rest  string   // of the line, behind the verb
	at    int      // its line in the file, from 0
	want  []output // in the file
	lines int      // of the file that are output

	runs [][]string // what sets each run of the case apart

	mu   sync.Mutex
	came map[string][]string // the output of each
}

// An output is a line that is to come, in all runs or in those that have such a mark.
type output struct{ mark, text string }

// A file is a list of cases, and its text.
type file struct {
	name  string
	lines []string
	cases []*Case
}

// Read reads the cases of a file.
func Read(name string) ([]*Case, error) {
	f, err := readFile(name)
	if err != nil {
		return nil, err
	}
	return f.cases, nil
}

// Handle gives h the handlers of the case, and behind them those of all cases.
func (c *Case) Handle(h *Handler) error {
	for _, common := range []bool{false, true} {
		for _, command := range c.Commands {
			if command.Verb != "handler" || command.at < 0 != common {
				continue
			}
			if err := h.add(command.rest); err != nil {
				return err
			}
		}
	}
	return nil
}

func readFile(name string) (*file, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &file{name: name, lines: strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")}
	var c *Case
	var common []string // lines before the first case
	for i, line := range f.lines {
		switch {
		case strings.HasPrefix(line, "== "):
			c = &Case{Name: line[3:]}
			f.cases = append(f.cases, c)
			for at, line := range common {
				if err := c.read(line, -1); err != nil {
					return nil, fmt.Errorf("%s, line %d before the first case: %w", name, at+1, err)
				}
			}
		case strings.TrimSpace(line) == "", line[0] == '#':
		case c == nil:
			common = append(common, line)
		case line[0] == '=':
			if len(c.Commands) == 0 {
				return nil, fmt.Errorf("%s:%d: output of no command", name, i+1)
			}
			last := c.Commands[len(c.Commands)-1]
			mark, text, _ := strings.Cut(line[1:], " ")
			last.want = append(last.want, output{mark, text})
			last.lines = i - last.at
		default:
			if err := c.read(line, i); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
			}
		}
	}
	return f, nil
}

// read adds the command of a line.
func (c *Case) read(line string, at int) (err error) {
	verb, rest, _ := strings.Cut(line, " ")
	command := &Command{Verb: verb, rest: rest, at: at, came: map[string][]string{}}
	if verb == "handler" {
		c.Commands = append(c.Commands, command)
		return nil // its steps are read later
	}
	command.Args, err = Words(rest)
	c.Commands = append(c.Commands, command)
	return err
}

// Words splits a line at its spaces, but not within Go strings, which it unquotes.
func Words(line string) (all []string, err error) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		word, rest, _ := strings.Cut(line, " ")
		if i := strings.IndexByte(word, '"'); i >= 0 {
			quoted, err := strconv.QuotedPrefix(line[i:])
			if err != nil {
				return nil, fmt.Errorf("a string in %q: %w", line, err)
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", quoted, err)
			}
			word, rest = line[:i]+text, line[i+len(quoted):]
		}
		all = append(all, word)
		line = rest
	}
	return all, nil
}

// Text is what a word says: "4096*x" is 4096 bytes.
func Text(word string) string {
	times, what, repeated := strings.Cut(word, "*")
	if n, err := strconv.Atoi(times); repeated && err == nil {
		return strings.Repeat(what, n)
	}
	return word
}

// Settings are those of a server, by name.
type Settings map[string]string

// A Player runs one case with one server.
type Player interface {
	// Do runs a command, and returns the lines that came of it.
	Do(c *Command) ([]string, error)
}

// Run runs all cases of a file, each as a subtest. begin makes the player for a case, on the server
// of that name. Without servers there is one, which has no name.
func Run(t *testing.T, name string, begin func(t *testing.T, server string, s Settings, h *Handler) Player,
	servers ...string) {
	t.Helper()
	f, err := readFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(servers) == 0 {
		servers = []string{""}
	}
	for _, c := range f.cases {
		t.Run(c.Name, func(t *testing.T) {
			all, err := c.settings()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				for _, server := range servers {
					marks := marksOf(s, server)
					for _, command := range c.Commands {
						command.runs = append(command.runs, marks)
					}
					t.Run(cmp.Or(strings.Join(marks, " "), "run"), func(t *testing.T) {
						h := new(Handler)
						play(t, f, c, marks, begin(t, server, s, h), h)
					})
				}
			}
		})
	}
	if *update {
		f.write(t)
	}
}

// marksOf is what sets a run of a case apart from others.
func marksOf(s Settings, server string) (marks []string) {
	if server != "" {
		marks = []string{server}
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		marks = append(marks, name+"="+s[name])
	}
	return marks
}

// settings are all combinations of the values that the case gives its server.
func (c *Case) settings() ([]Settings, error) {
	all := []Settings{{}}
	for _, command := range c.Commands {
		if command.Verb != "server" {
			continue
		}
		for _, word := range command.Args {
			name, values, found := strings.Cut(word, "=")
			if !found {
				return nil, fmt.Errorf("%q sets nothing", word)
			}
			var more []Settings
			for _, s := range all {
				for value := range strings.SplitSeq(values, ",") {
					next := maps.Clone(s)
					next[name] = value
					more = append(more, next)
				}
			}
			all = more
		}
	}
	return all, nil
}

func play(t *testing.T, f *file, c *Case, marks []string, p Player, h *Handler) {
	if err := c.Handle(h); err != nil {
		t.Fatalf("%s, %s: %v", f.name, c.Name, err)
	}
	for _, command := range c.Commands {
		if command.Verb == "server" || command.Verb == "handler" {
			continue
		}
		got, err := p.Do(command)
		if err != nil {
			t.Fatalf("%s:%d: %v", f.name, command.at+1, err)
		}
		if *update {
			command.keep(marks, got)
			continue
		}
		if want := command.wanted(marks); !slices.Equal(got, want) {
			t.Errorf("%s:%d: %s %s\ngot\n\t%s\nwant\n\t%s", f.name, command.at+1, command.Verb, command.rest,
				strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

// wanted is the output that has to come in a run.
func (c *Command) wanted(marks []string) (lines []string) {
	for _, o := range c.want {
		if o.mark == "" || !slices.ContainsFunc(strings.Split(o.mark, ","), func(mark string) bool {
			return !slices.Contains(marks, mark)
		}) {
			lines = append(lines, o.text)
		}
	}
	return lines
}

func (c *Command) keep(marks, got []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came[strings.Join(marks, ",")] = got
}

// write gives the file the output that came.
func (f *file) write(t *testing.T) {
	var text []string
	at := 0
	for _, c := range f.cases {
		for _, command := range c.Commands {
			if command.at < 0 {
				continue // it stands before the first case
			}
			text = append(text, f.lines[at:command.at+1]...)
			at = command.at + 1 + command.lines
			text = append(text, command.output()...)
		}
	}
	text = append(text, f.lines[at:]...)
	if err := os.WriteFile(f.name, []byte(strings.Join(text, "\n")+"\n"), 0o644); err != nil {
		t.Error(err)
	}
}

// output is the lines of the file for what came of a command. If it did not run, they stay.
func (c *Command) output() (lines []string) {
	if len(c.came) == 0 {
		for _, o := range c.want {
			lines = append(lines, "="+o.mark+" "+o.text)
		}
		return lines
	}
	for _, some := range choices(len(c.runs[0])) { // the fewest marks that tell apart what differs
		if lines, ok := c.marked(some); ok {
			return lines
		}
	}
	return nil
}

// choices are all sets of n marks, small ones first.
func choices(n int) (all []uint) {
	for set := range uint(1) << n {
		all = append(all, set)
	}
	slices.SortStableFunc(all, func(a, b uint) int { return bits.OnesCount(a) - bits.OnesCount(b) })
	return all
}

// marked gives each line some of the marks of its run. It reports false if runs with the same ones
// differ.
func (c *Command) marked(some uint) (lines []string, ok bool) {
	known := map[string][]string{}
	for _, run := range c.runs {
		var marks []string
		for i, mark := range run {
			if some>>i&1 == 1 {
				marks = append(marks, mark)
			}
		}
		mark, came := strings.Join(marks, ","), c.came[strings.Join(run, ",")]
		before, again := known[mark]
		if again && !slices.Equal(before, came) {
			return nil, false
		}
		known[mark] = came
		for _, line := range came {
			if !again {
				lines = append(lines, "="+mark+" "+line)
			}
		}
	}
	return lines, true
}
