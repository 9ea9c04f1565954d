package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/load"
)

// loaded runs myriad load with arguments, and returns what it prints.
func loaded(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"myriad", "load"}, args...), &out, &syncBuffer{})
	return out.String(), err
}

// answered is how many requests the report in a file has measured.
func answered(t *testing.T, file string) int64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r load.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r.Total.Latency.Count()
}

func TestLoad(t *testing.T) {
	url, _, stop := start(t)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	file, page := filepath.Join(t.TempDir(), "a.json"), filepath.Join(t.TempDir(), "a.html")
	short := []string{"--warmup", "0s", "--duration", "200ms", "--connections", "5"}
	out, err := loaded(t, append([]string{"http", url + "/health", "--json", file, "--html", page}, short...)...)
	if err != nil || !strings.Contains(out, "5 connections") || !strings.Contains(out, "no errors") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	out, err = loaded(t, append([]string{"http", url + "/health", "--compare", file, "--fail-if", "p99>1ns"},
		short...)...)
	if err == nil || !strings.Contains(err.Error(), "p99>1ns") || !strings.Contains(out, "now/before") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	if p, err := os.ReadFile(page); err != nil || !bytes.Contains(p, []byte("5 connections")) ||
		!bytes.Contains(p, []byte("</html>")) {
		t.Errorf("the page: %v, %s", err, p)
	} else if got := answered(t, file); got >= 2 != bytes.Contains(p, []byte("<svg")) { // a line has two points
		t.Errorf("the page of %d answers: %s", got, p)
	}
	out, err = loaded(t, append([]string{"push", url, "--rate", "50"}, short...)...)
	if err != nil || !strings.Contains(out, "0 missing, 0 twice, 0 out of order") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestLoadRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--yes-i-own-this":     {"http", "http://192.0.2.1/"},
		"no kind of load":      {"udp"},
		"takes one argument":   {"http"},
		"write http://":        {"http", "127.0.0.1:1"},
		"p99>50ms":             {"http", "http://127.0.0.1:1/", "--fail-if", "slow"},
		"there is no figure":   {"http", "http://127.0.0.1:1/", "--fail-if", "last-p99>1s"},
		"no such file":         {"http", "http://127.0.0.1:1/", "--compare", "/nowhere/a.json"},
		"16 at least":          {"--join", "127.0.0.1:1", "--secret", "short"},
		"did you mean --rate?": {"http", "http://127.0.0.1:1/", "--rat", "5"},
	} {
		if _, err := loaded(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
