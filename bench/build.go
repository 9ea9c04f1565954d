package main

import (
	"context"
	_ "embed"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/myriad-go/myriad/bench/check"
)

//go:embed servers/c/epoll.c
var epollSource string

// A bakery builds the servers: one program for each rival and not one for all, because what a program links costs memory even if
// it is not used (13 MB of it here), and package initialisation fills the heap by whose size Go decides when to collect. The
// programs stay in the user's cache, where go build finds those that are still right.
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
	made := map[string]bool{}
	for _, s := range wanted {
		if s.foreign || made[s.program] {
			continue
		}
		made[s.program] = true
		if err := b.make(ctx, s.program); err != nil {
			b.missing[s.program] = err
		}
	}
	return b, ctx.Err()
}

func (b *bakery) make(ctx context.Context, program string) error {
	if program == "c" {
		return b.makeC(ctx)
	}
	folder := path.Dir(reflect.TypeFor[check.Check]().PkgPath()) // this module, wherever it has been moved to
	return output(exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-w", "-o", b.path(program), folder+"/servers/"+program))
}

func (b *bakery) makeC(ctx context.Context) error {
	for _, compiler := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if found, err := exec.LookPath(compiler); err == nil {
			cmd := exec.CommandContext(ctx, found, "-O2", "-x", "c", "-o", b.path("c"), "-")
			cmd.Stdin = strings.NewReader(epollSource)
			return output(cmd)
		}
	}
	return fmt.Errorf("there is no C compiler: no cc, gcc or clang, and CC is not set")
}

func output(cmd *exec.Cmd) error {
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.600s", filepath.Base(cmd.Path), err, strings.Join(strings.Fields(string(text)), " "))
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
