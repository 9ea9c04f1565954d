package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repository = "../../.."

// A block is code in a document: fenced, or indented by four columns, which marks shell commands
// here.
type block struct{ at, language, text string }

// documented returns the blocks of all documents for new users.
func documented(t *testing.T) (blocks []block) {
	t.Helper()
	names, err := filepath.Glob(repository + "/docs/guides/*.md")
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	for _, name := range []string{"README.md", "README.zh-CN.md", "CONTRIBUTING.md", "docs/HACKING.md",
		"examples/mail/README.md"} {
		names = append(names, filepath.Join(repository, name))
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var fenced *block
		for i, line := range strings.Split(string(text), "\n") {
			at := fmt.Sprintf("%s:%d", strings.TrimPrefix(name, repository+"/"), i+1)
			switch language, fence := strings.CutPrefix(line, "```"); {
			case fence && fenced == nil:
				fenced = &block{at: at, language: language}
			case fence:
				blocks, fenced = append(blocks, *fenced), nil
			case fenced != nil:
				fenced.text += line + "\n"
			case strings.HasPrefix(line, "    "):
				blocks = append(blocks, block{at, "sh", strings.TrimSpace(line) + "\n"})
			}
		}
	}
	return blocks
}

// The two READMEs have the same code, in the same order.
func TestReadmesHaveTheSameCode(t *testing.T) {
	code := map[string][]string{}
	for _, b := range documented(t) {
		name, _, _ := strings.Cut(b.at, ":")
		code[name] = append(code[name], b.language+"\n"+b.text)
	}
	if len(code["README.md"]) < 5 || !slices.Equal(code["README.md"], code["README.zh-CN.md"]) {
		t.Errorf("README.md has\n%s\nREADME.zh-CN.md has\n%s", code["README.md"], code["README.zh-CN.md"])
	}
}

// Every command for this program or its address works as documented. Other commands name files and
// targets that exist.
func TestCommandsOfTheDocuments(t *testing.T) {
	makefile, err := os.ReadFile(repository + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	url, _, _ := start(t)
	t.Setenv("MYRIAD_API_KEY", "a-key-of-yours")
	secured, _, _ := start(t, "--token-secret", "s")
	os.Unsetenv("MYRIAD_API_KEY")
	counts := map[string]int{}
	for _, b := range documented(t) {
		for line := range strings.Lines(b.text) {
			line, comment, _ := strings.Cut(strings.TrimSpace(line), " # ")
			kind, err := "", error(nil)
			switch {
			case b.language != "sh":
				continue
			case strings.HasPrefix(line, "curl ") && strings.Contains(line, "127.0.0.1:8000"):
				kind, err = "curl", curl(line, strings.TrimSpace(comment), url, secured)
			case regexp.MustCompile(`^([A-Z_]+=\S+ )*(\./myriad|go run \./server/cmd/myriad) serve`).MatchString(line):
				kind, err = "serve", checked(t, line)
			case strings.HasPrefix(line, "go ") || strings.Contains(line, " go "):
				kind = "go"
				for _, path := range regexp.MustCompile(`\./[a-z0-9/]+`).FindAllString(line, -1) {
					_, missing := os.Stat(filepath.Join(repository, path))
					err = errors.Join(err, missing)
				}
			case strings.HasPrefix(line, "make "):
				if kind = "make"; !bytes.Contains(makefile, []byte("\n"+strings.Fields(line)[1]+":")) {
					err = errors.New("the Makefile has no such target")
				}
			}
			counts[kind]++
			if err != nil {
				t.Errorf("%s: %s: %v", b.at, line, err)
			}
		}
	}
	if counts["serve"] < 7 || counts["go"] < 15 || counts["curl"] < 8 {
		t.Errorf("only these commands were found: %v", counts)
	}
}

// Every configuration file of the documents passes --check.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	found := 0
	for _, b := range documented(t) {
		if b.language != "toml" {
			continue
		}
		found++
		file := filepath.Join(t.TempDir(), "myriad.toml")
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"myriad", "serve", "--check", "--config", file}
		if err := run(t.Context(), args, io.Discard, io.Discard); err != nil {
			t.Errorf("%s: %v", b.at, err)
		}
	}
	if found < 2 {
		t.Errorf("only %d files were found", found)
	}
}

// curl runs the command against the server without keys, or, if the command needs one, against the
// secured server.
func curl(line, comment, url, secured string) error {
	if regexp.MustCompile(`^\d+$`).MatchString(comment) || strings.Contains(line, "X-API-Key") {
		url = secured
	}
	if _, err := exec.LookPath("curl"); err != nil {
		return nil
	}
	line = strings.ReplaceAll(line, "http://127.0.0.1:8000", url)
	if strings.Contains(line, " -N ") {
		return stream(line)
	}
	said, err := exec.Command("sh", "-c", strings.Replace(line, "curl ", "curl -sS -w ' status "+
		"%{http_code}' ", 1)).Output()
	want := "200"
	if comment != "" && url == secured {
		want = comment
	}
	if err == nil && !strings.Contains(line, "|") && !strings.HasSuffix(string(said), " status "+want) {
		err = fmt.Errorf("it says %q, want status %s", said, want)
	}
	return err
}

// stream starts a command that does not end, and checks its first line.
func stream(line string) error {
	c := exec.Command("sh", "-c", "exec "+line)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	_ = c.Process.Kill() // in vain if it has ended
	_ = c.Wait()         // it was killed
	if !strings.HasPrefix(first, "retry: ") && !strings.HasPrefix(first, `{"connect":`) {
		return fmt.Errorf("the first line is %q, %v", first, err)
	}
	return nil
}

// checked parses the command line as a shell does, and runs it with --check.
func checked(t *testing.T, line string) error {
	// wrong on purpose; of files that are not here
	if strings.Contains(line, "--lsten") || strings.Contains(line, "--tls-cert") {
		return nil
	}
	words, err := exec.Command("sh", "-c", "cd "+repository+"; set -- "+strings.TrimSuffix(line, "&")+`; printf `+
		`'%s\n' "$@"`).Output()
	if err != nil {
		return err
	}
	args := strings.Split(strings.TrimSpace(string(words)), "\n")
	command := slices.Index(args, "serve")
	for _, variable := range args[:command] {
		if name, value, ok := strings.Cut(variable, "="); ok {
			t.Setenv(name, value)
			defer os.Unsetenv(name)
		}
	}
	t.Chdir(repository)
	defer t.Chdir("server/cmd/myriad")
	return run(t.Context(), slices.Concat([]string{"myriad"}, args[command:], []string{"--check"}), io.Discard,
		io.Discard)
}
