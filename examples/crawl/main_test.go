package main

import (
	"context"
	"fmt"
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
	for _, want := range []string{"/gone\t410 Gone", "/hangs\tclient: sent", "127.0.0.1:1/\tclient: dialing"} {
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
