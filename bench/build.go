package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

//go:embed servers/c/epoll.c
var epollSource string

//go:embed clients/c/client.c
var clientSource string

// A bakery builds the servers, one program for each. A common program would link all rivals, which
// costs memory even for unused code (13 MB here). And package initialisation fills the heap, whose
// size decides when Go collects. The programs stay in the user's cache, where go build finds those
// that are still right.
type bakery struct {
	dir     string
	missing map[string]error // program -> why it could not be built
}

// build makes every program that these servers need. What cannot be built is missing, and no error.
func build(ctx context.Context, wanted []server) (*bakery, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	h := fnv.New32a()
	fmt.Fprint(h, here)
	b := &bakery{filepath.Join(cache, "myriad-bench", fmt.Sprintf("%08x", h.Sum32())), map[string]error{}}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	var programs []string // in Go
	for _, s := range wanted {
		switch {
		case s.foreign || slices.Contains(programs, s.program):
		case s.program != "c":
			programs = append(programs, s.program)
		default:
			b.note(s.program, makeC(ctx, epollSource, b.path("c")))
		}
	}
	if b.make(ctx, programs...) == nil {
		return b, ctx.Err()
	}
	for _, program := range programs {
		b.note(program, b.make(ctx, program))
	}
	return b, ctx.Err()
}

// install has go install make Centrifugo, if a server needs it and it is not installed. It
// downloads what it is made of, the first time. Tests do without it.
func (b *bakery) install(ctx context.Context, wanted []server) {
	if !slices.ContainsFunc(wanted, func(s server) bool { return strings.HasPrefix(s.name, "centrifugo") }) {
		return
	}
	dir := filepath.Join(b.dir, harness.InstalledFolder)
	if _, err := os.Stat(filepath.Join(dir, "centrifugo")); err == nil {
		return
	}
	if _, err := harness.FindCentrifugo(); err == nil {
		return
	}
	cmd := exec.CommandContext(ctx, "go", "install", harness.Centrifugo)
	cmd.Dir = dir // outside of this module, whose workspace has no say in it
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = output(cmd)
	}
	if err != nil {
		b.missing["centrifugo"] = fmt.Errorf("there is no centrifugo, and it cannot be built: %w", err)
	}
}

func (b *bakery) note(program string, err error) {
	if err != nil {
		b.missing[program] = err
	}
}

// make builds programs with one go command.
func (b *bakery) make(ctx context.Context, programs ...string) error {
	if len(programs) == 0 {
		return nil
	}
	folder := path.Dir(reflect.TypeFor[check.Check]().PkgPath()) // this module, wherever it has been moved to
	args := []string{"build", "-buildvcs=false", "-ldflags=-w", "-o", b.dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, folder+"/servers/"+program)
	}
	return output(exec.CommandContext(ctx, "go", args...))
}

// errNoCompiler says that a program in C cannot be built.
var errNoCompiler = errors.New("there is no C compiler: no cc, gcc or clang, and CC is not set")

// makeC compiles a program in C.
func makeC(ctx context.Context, source, program string) error {
	for _, compiler := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if found, err := exec.LookPath(compiler); err == nil {
			cmd := exec.CommandContext(ctx, found, "-O2", "-x", "c", "-o", program, "-")
			cmd.Stdin = strings.NewReader(source)
			return output(cmd)
		}
	}
	return errNoCompiler
}

func output(cmd *exec.Cmd) error {
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.600s", filepath.Base(cmd.Path), err,
			strings.Join(strings.Fields(string(text)), " "))
	}
	return nil
}

func (b *bakery) path(program string) string { return filepath.Join(b.dir, program) }

// find is the program of a server, or why there is none.
func (b *bakery) find(s server) (string, error) {
	if s.foreign {
		return exec.LookPath(s.program)
	}
	return b.path(s.program), b.missing[s.program]
}
