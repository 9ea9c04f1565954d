package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGHUP applies what can change while the server runs, and names what cannot.
func TestReloadOnSIGHUP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "myriad.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const keys = "api-key = \"k\"\ntoken-secret = \"a secret that is long enough for HS256\"\n"
	write(keys)
	url, log, stop := start(t, "--config", file)
	answers := func() int {
		return strings.Count(log.String(), "SIGHUP: read the") +
			strings.Count(log.String(), "SIGHUP: the configuration has")
	}
	// each signal is answered before the next: one that is late would end the process after stop
	hangUp := func(wanted ...string) {
		t.Helper()
		before := answers()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		has := func(text string) bool { return strings.Contains(log.String(), text) }
		for range 3000 {
			if answers() > before && !slices.ContainsFunc(wanted, func(text string) bool { return !has(text) }) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the log does not have %q:\n%s", wanted, log)
	}
	hangUp("changed=[]")
	write(keys + "log-level = \"debug\"\naddress-call-rate = \"1/1h\"\nchannel-limit = 7\n" +
		"[[namespace]]\nname = \"a\"\n")
	hangUp(`changed="[namespace address-call-rate log-level]"`, `options=[channel-limit]`)
	write(keys + "log-level = \"debug\"\naddress-call-rate = \"1/1h\"\nchannel-limit = 7\n" +
		"[[namespace]]\nname = \"a\"\nhistory-size = 5\n")
	hangUp(`options="[namespace channel-limit]" namespaces="push: namespace \"a\": the history`)
	call := func() (status int) {
		r, err := http.NewRequest("POST", url+"/api/info", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", "k")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if first, second := call(), call(); first != 200 || second != 429 {
		t.Errorf("two calls: %d, %d", first, second)
	}
	write("api-key = \"k\"\nchannel-limit = 0\n")
	hangUp("nothing changes")
	write("api-key = \"k\"\n")
	hangUp("restart it for that") // without a secret
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]string{
		"10/1m": "10 in 1m0s", "1/s": "as in 10/1s", "0/1s": "positive", "a": "as in",
		"5/0s": "longer", "-1/1s": "positive", "": "as in",
	} {
		rate, err := parseRate(text)
		got := rate.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
