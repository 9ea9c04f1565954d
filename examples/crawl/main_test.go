package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/client"
)

// The report names what is broken, and why; the rest is only counted.
func TestCrawl(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/hangs":
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	var list strings.Builder
	for i := range 300 {
		fmt.Fprintf(&list, "%s/page/%d\n\n", s.URL, i)
	}
	fmt.Fprintf(&list, "%s/gone\n%s/hangs\nhttp://127.0.0.1:1/\n", s.URL, s.URL)
	var report, status strings.Builder
	g := &client.Group{AtOnce: 20, PerHost: 10, Timeout: time.Second, MaxBody: -1}
	broken, err := crawl(context.Background(), g, strings.NewReader(list.String()), &report, &status)
	if err != nil || broken != 3 {
		t.Errorf("%d broken, %v", broken, err)
	}
	for _, want := range []string{"/gone\t410 Gone", "/hangs\tclient: waiting for the head",
		"127.0.0.1:1/\tclient: connecting"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("no %q in\n%s", want, report.String())
		}
	}
	if got := status.String(); !strings.Contains(got, "303 requests") || !strings.Contains(got, "200:300") {
		t.Errorf("status\n%s", got)
	}
	if _, err = crawl(context.Background(), g, strings.NewReader("http://a b/"), &report, &status); err == nil {
		t.Error("a line that is no URL is not reported")
	}
}

// More links to a server that does not answer than it may have at a time come to an end.
func TestCrawlSilentServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var report, status strings.Builder
	g := &client.Group{PerHost: 8, Timeout: 20 * time.Millisecond, MaxBody: -1,
		Retry: client.Retry{Attempts: 3, Base: time.Millisecond}}
	broken, err := crawl(ctx, g, strings.NewReader(strings.Repeat(s.URL+"\n", 30)), &report, &status)
	if err != nil || broken != 30 || strings.Count(report.String(), "Group.Timeout") != 30 || ctx.Err() != nil {
		t.Errorf("%d broken, %v, %v:\n%s", broken, err, ctx.Err(), report.String())
	}
	if !strings.Contains(status.String(), "60 retries") {
		t.Errorf("status\n%s", status.String())
	}
}

// An interrupt ends the run although the list has not ended. What it had is reported.
func TestCrawlInterrupted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	in, lines := io.Pipe()
	defer lines.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		fmt.Fprintln(lines, s.URL)
		cancel()
	}()
	var report, status strings.Builder
	broken, err := crawl(ctx, &client.Group{}, in, &report, &status)
	if err != nil || broken > 1 || !strings.Contains(status.String(), "1 requests") && broken == 1 {
		t.Errorf("%d broken, %v:\n%s%s", broken, err, report.String(), status.String())
	}
}
