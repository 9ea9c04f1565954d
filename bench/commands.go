package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	// urfave/cli v3: what the other command of this project uses; it depends on nothing.
	"github.com/urfave/cli/v3"
)

func command(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:           "bench",
		Usage:          "measure servers side by side",
		Writer:         stdout,
		ErrWriter:      stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main reports it
		Commands: []*cli.Command{
			listCommand(stdout),
			buildCommand(stdout),
			runCommand(stdout, stderr),
			allCommand(stdout, stderr),
			reportCommand(stdout),
			modelCommand(stdout),
			witnessCommand(stdout),
			loadCostCommand(stdout),
		},
	}
}

func listCommand(w io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "print the scenarios and the servers",
		Action: func(context.Context, *cli.Command) error {
			t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "SCENARIO\tROWS\tCONNECTIONS\tASKS")
			for _, s := range scenarios {
				fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", s.name, s.rows, s.conns, s.asks)
			}
			for _, a := range articles {
				fmt.Fprintf(t, "%s\t\t\tall of %s\n", a.name, strings.Join(a.scenarios(), ", "))
			}
			for _, name := range slices.Sorted(maps.Keys(together)) {
				fmt.Fprintf(t, "%s\t\t\tall of %s\n", name, strings.Join(together[name], ", "))
			}
			fmt.Fprintln(t, "\nSERVER\t\t\t")
			for _, s := range servers {
				fmt.Fprintf(t, "%s\t%s\n", s.name, s.about)
			}
			return t.Flush()
		},
	}
}

func buildCommand(w io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "build",
		Usage: "build all servers, as run does with those that it needs",
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() > 0 {
				return errors.New("build takes no names: it builds all servers")
			}
			programs, err := build(ctx, servers)
			if err != nil {
				return err
			}
			programs.install(ctx, servers)
			for _, program := range slices.Sorted(maps.Keys(programs.missing)) {
				reason := programs.missing[program]
				fmt.Fprintf(w, "%s not built: %v\n", program, reason)
				if reason != errNoCompiler {
					err = errors.Join(err, fmt.Errorf("%s: %w", program, reason))
				}
			}
			return err
		},
	}
}

func runFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "rounds", Value: 3, Usage: "turns of each server"},
		&cli.DurationFlag{Name: "duration", Value: 3 * time.Second,
			Usage: "time under load in each turn, after the warm-up"},
		&cli.DurationFlag{Name: "patience",
			Usage: "time in all to wait for other processes to be quiet and to repeat turns that they spoilt"},
		&cli.IntFlag{Name: "conns", Usage: "connections, instead of the scenario's"},
		&cli.IntFlag{Name: "times", Usage: "how often something is done, instead of as often as the scenario says"},
		&cli.StringSliceFlag{Name: "only", Usage: "servers that take part, no others"},
		&cli.StringSliceFlag{Name: "without", Usage: "servers that do not take part"},
		&cli.StringSliceFlag{Name: "server", Usage: "a server from elsewhere, as `NAME=PATH`; see docs/BENCHMARKS.md"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON instead of tables"},
		&cli.StringFlag{Name: "save", Usage: "write the JSON to a `FILE` too, after each scenario, for report"},
		&cli.BoolFlag{Name: "resume", Usage: "go on with what --save has kept of an interrupted run"},
	}
}

func runCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run scenarios by name",
		ArgsUsage: "NAME...",
		Flags:     runFlags(),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() == 0 {
				return errors.New("which scenario? See list, or use all")
			}
			return execute(ctx, c, c.Args().Slice(), stdout, stderr)
		},
	}
}

func allCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "all",
		Usage: "run every scenario",
		Flags: append(runFlags(), &cli.StringSliceFlag{Name: "skip", Usage: "scenarios that are not run"}),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() > 0 {
				return fmt.Errorf("all takes no names: use run %s", strings.Join(c.Args().Slice(), " "))
			}
			return execute(ctx, c, nil, stdout, stderr)
		},
	}
}

func execute(ctx context.Context, c *cli.Command, names []string, stdout, stderr io.Writer) error {
	s := selection{
		scenarios: expand(names), skipped: expand(c.StringSlice("skip")), only: c.StringSlice("only"),
		without: c.StringSlice("without"), foreign: c.StringSlice("server"),
		conns: c.Int("conns"), rounds: c.Int("rounds"), duration: c.Duration("duration"),
		patience: c.Duration("patience"), times: c.Int("times"),
	}
	plans, err := s.plan()
	if err != nil {
		return err
	}
	before, plans, err := s.resume(c.Bool("resume"), c.String("save"), plans)
	if err != nil {
		return err
	}
	turns := 0
	for _, p := range plans {
		turns += len(p.turns) * s.rounds
	}
	bar := newProgress(stderr, turns)
	var printing error
	r, err := s.measureAll(ctx, before, plans, bar, func(r *results, o *outcome) {
		if !c.Bool("json") {
			bar.clear()
			printing = errors.Join(printing, tabulate(r, o).print(stdout))
		}
		if name := c.String("save"); name != "" { // each time, so that an interrupted run is not lost
			printing = errors.Join(printing, r.save(name))
		}
	})
	bar.finish()
	if r == nil {
		return err
	}
	if c.Bool("json") {
		printing = errors.Join(printing, r.write(stdout))
	}
	return errors.Join(err, printing)
}

func reportCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "make tables of saved results, by default of those in bench/results",
		ArgsUsage: "[FILE...]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "html", Value: filepath.Join(os.TempDir(), "myriad-bench.html"),
				Usage: "where to write a page"},
			&cli.StringFlag{Name: "markdown", Usage: "where to write tables for documents, instead of printing them"},
			&cli.BoolFlag{Name: "update",
				Usage: "make anew what documents of the repository show of the results: tables, figures and charts"},
		},
		Action: func(_ context.Context, c *cli.Command) error {
			all, err := readAll(c.Args().Slice())
			if err != nil {
				return err
			}
			if err := toFile(c.String("html"), func(w io.Writer) error { return writeHTML(w, all) }); err != nil {
				return err
			}
			defer fmt.Fprintf(stdout, "\nThe page is %s\n", c.String("html"))
			switch {
			case c.Bool("update"):
				return update(all)
			case c.String("markdown") != "":
				return toFile(c.String("markdown"), func(w io.Writer) error { return writeMarkdown(w, all) })
			}
			return writeMarkdown(stdout, all)
		},
	}
}

func readAll(files []string) ([]*results, error) {
	if len(files) == 0 {
		files = savedResults()
	}
	if len(files) == 0 {
		return nil, errors.New("there are no results in bench/results: name the files that run --save has written")
	}
	var all []*results
	for _, name := range files {
		r, err := readResults(name)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// savedResults are those of the repository, seen from its root or from here.
func savedResults() []string {
	for _, pattern := range []string{"bench/results/*.json", "results/*.json"} {
		if files, _ := filepath.Glob(pattern); len(files) > 0 { // the patterns are well-formed
			return files
		}
	}
	return nil
}

// writeMarkdown is an overview, the tables of the articles, and those of all scenarios.
func writeMarkdown(w io.Writer, all []*results) error {
	if err := errors.Join(markdownOverview(w, all), markdownArticles(w, all)); err != nil {
		return err
	}
	for _, r := range all {
		if err := r.markdown(w); err != nil {
			return err
		}
	}
	return nil
}

func toFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
