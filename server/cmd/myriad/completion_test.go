package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// script writes the shell's completion script to a file.
func script(t *testing.T, shell string) (name string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"myriad", "completion", shell}, &out, &out); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), shell)
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// shellOrSkip runs a program in the shell without the user's settings.
func shellOrSkip(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	c := exec.Command(name, args...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "HOME="+c.Dir, "XDG_CONFIG_HOME="+c.Dir)
	said, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, said)
	}
	return strings.TrimSpace(string(said))
}

// Bash calls the function with the command, the current word and the previous word. For bash, = is
// a word.
func TestCompletionOfBash(t *testing.T) {
	const complete = `set -u
source "$1"; shift
[[ $(complete -p myriad) == *"-o default -F _myriad myriad" ]] || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_myriad myriad "${@: -1}" "${COMP_WORDS[COMP_CWORD-1]}"
echo "${COMPREPLY[@]-}"`
	file := script(t, "bash")
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{""}, "serve cluster load token health version completion"},
		{[]string{"se"}, "serve"},
		{[]string{"serve", "--lo"}, "--loops --log-format --log-level"},
		{[]string{"serve", "--check", "--al"}, "--allowed-origin"},
		{[]string{"serve", "--log-format", ""}, "text json"},
		{[]string{"serve", "--log-format", "="}, "text json"},
		{[]string{"serve", "--log-format", "=", "j"}, "json"},
		{[]string{"serve", "--config", "myr"}, ""}, // bash goes on with names of files
		{[]string{"completion", "b"}, "bash"},
	} {
		got := shellOrSkip(t, "bash", slices.Concat([]string{"--norc", "-c", complete, "bash", file, "myriad"},
			tt.words)...)
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.words, got, tt.want)
		}
	}
	all := shellOrSkip(t, "bash", "--norc", "-c", complete, "bash", file, "myriad", "serve", "--")
	for _, o := range options {
		if !slices.Contains(strings.Fields(all), "--"+o.name) {
			t.Errorf("--%s is not completed", o.name)
		}
	}
}

func TestCompletionOfFish(t *testing.T) {
	file := script(t, "fish")
	for line, want := range map[string]string{
		"myriad se":                    "serve\trun the push server",
		"myriad serve --log-format=j":  "--log-format=json\tFORMAT of the log: text or json",
		"myriad serve --disable-":      "--disable-console\tserve no console",
		"myriad completion z":          "zsh",
		"myriad serve --namespace nam": "",
	} {
		if got := shellOrSkip(t, "fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, file,
			line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// Completion in zsh needs a terminal. This test only checks that zsh can read the script.
func TestCompletionOfZsh(t *testing.T) {
	shellOrSkip(t, "zsh", "-f", "-c",
		`compdef() { [[ "$*" == "_myriad myriad" ]] && defined=1 }; source $1 && (( defined ))`, "zsh",
		script(t, "zsh"))
}
