package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/soak"
)

func TestVersions(t *testing.T) {
	for v, want := range map[string]bool{
		"v0.1.0": true, "v1.20.3": true, "v1.0.0-rc.1": true,
		"0.1.0": false, "v0.1": false, "v01.0.0": false, "v2.0.0": false, "v0.1.0 ": false, "latest": false, "": false,
	} {
		if err := checkVersion(v); (err == nil) != want {
			t.Errorf("%q: %v", v, err)
		}
	}
	for _, args := range [][]string{nil, {"v0.1.0", "v0.2.0"}, {"-nope", "v0.1.0"}} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

// inRoot runs the rest of the test in the root of the checkout.
func inRoot(t *testing.T) {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
	if err := exec.Command("git", "ls-files").Run(); err != nil {
		t.Skip("not in a git checkout: ", err)
	}
}

func TestRelease(t *testing.T) {
	inRoot(t)
	proxy := t.TempDir()
	if err := run([]string{"-proxy", proxy, "v0.0.1-test"}, io.Discard, os.Stderr); err != nil {
		t.Fatal(err)
	}
	env := userEnv(t, proxy) // one module cache for both, which costs seconds to fill
	compile := soak.On(t)
	t.Run("install", func(t *testing.T) { testInstall(t, env, compile) })
	t.Run("server verifies", func(t *testing.T) { testServerVerifies(t, env) })
}

// A user installs the command from a module proxy that has both modules, without a go.work or the
// checkout. Other modules come from the module cache.
func testInstall(t *testing.T, env []string, compile bool) {
	const command = "github.com/myriad-go/myriad/server/cmd/myriad@latest"
	if !compile {
		goRun(t, env, t.TempDir(), "install", "-n", command)
		return
	}
	goRun(t, env, t.TempDir(), "install", command)
	out, err := exec.Command(filepath.Join(bin(env), "myriad"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v0.0.1-test") {
		t.Errorf("myriad --version: %q, %v", out, err)
	}
}

// userEnv returns the environment of a user without the checkout, with the proxy.
func userEnv(t *testing.T, proxy string) []string {
	t.Helper()
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	url := func(dir string) string { return "file://" + filepath.ToSlash(dir) }
	downloads := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	return append(os.Environ(), "GOWORK=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOFLAGS=-modcacherw",
		"GOMODCACHE="+t.TempDir(), "GOBIN="+t.TempDir(), "GOPROXY="+url(proxy)+","+url(downloads))
}

func bin(env []string) string {
	for _, v := range env {
		if dir, ok := strings.CutPrefix(v, "GOBIN="); ok {
			return dir
		}
	}
	return ""
}

func goRun(t *testing.T, env []string, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// The server module of the release commit builds with its own go.mod and go.sum.
func testServerVerifies(t *testing.T, env []string) {
	library, err := readModule(".", "v0.0.1-test")
	if err != nil {
		t.Fatal(err)
	}
	server, err := readModule("server", "v0.0.1-test")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.require(library); err != nil {
		t.Fatal(err)
	}
	if mod := server.files["go.mod"]; bytes.Contains(mod, []byte("replace")) {
		t.Errorf("go.mod still replaces a module:\n%s", mod)
	}
	dir := t.TempDir()
	for name, p := range server.files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goRun(t, env, dir, "list", "-mod=readonly", "-deps", "./cmd/myriad")
}

// New checksums in go.sum replace those of another version. In TestRelease the go command
// checks them.
func TestChecksums(t *testing.T) {
	m := &module{path: "a", version: "v0.0.1", files: map[string][]byte{"go.mod": []byte("module a\n")}}
	n := &module{path: "b", version: "v0.0.1",
		files: map[string][]byte{"go.sum": []byte("a v0.0.0 h1:old\nz v1.0.0 h1:z\n")}}
	n.addSums(m)
	got := strings.Split(string(n.files["go.sum"]), "\n")
	if len(got) != 4 || !strings.HasPrefix(got[0], "a v0.0.1 h1:") || !strings.HasPrefix(got[1],
		"a v0.0.1/go.mod h1:") || got[2] != "z v1.0.0 h1:z" {
		t.Errorf("go.sum is %q", got)
	}
}
