package client

import (
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// A callback of OnBody that panics on the loop ends its connection, and the request counts no more.
func TestOnBodyPanics(t *testing.T) {
	for _, serve := range []struct {
		name string
		with func(*testing.T, http.HandlerFunc, *Transport) (url string)
	}{
		{"HTTP/1", func(t *testing.T, h http.HandlerFunc, tr *Transport) string {
			fresh(t, tr)
			return serveHTTP(t, h).URL
		}},
		{"HTTP/2", func(t *testing.T, h http.HandlerFunc, tr *Transport) string {
			s, _ := clearH2(t, h, tr)
			return s.URL
		}},
	} {
		for _, how := range []string{"piece", "end", "Goexit"} {
			t.Run(serve.name+" "+how, func(t *testing.T) {
				release := make(chan struct{})
				tr := &Transport{}
				url := serve.with(t, func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(200)
					http.NewResponseController(w).Flush()
					<-release
					io.WriteString(w, "text")
				}, tr)
				calls := make(chan error, 100)
				tr.Do(request(t, "GET", url, nil), func(r *http.Response, err error) {
					if err != nil {
						calls <- err
						return
					}
					err = OnBody(r, func(p []byte, err error) {
						calls <- err
						switch {
						case how == "piece" && p != nil, how == "end" && p == nil:
							panic("of a test")
						case how == "Goexit" && p != nil:
							runtime.Goexit()
						}
					})
					if err != nil {
						t.Error(err)
					}
					close(release)
				})
				noneInFlight(t, tr)
				tr.CloseIdleConnections()
				for end := time.Now().Add(patience); len(Leftovers(tr)) > 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("left: %v", Leftovers(tr))
					}
				}
				ends := 0
				for len(calls) > 0 {
					if err := <-calls; err != nil {
						ends++
					}
				}
				if ends != 1 {
					t.Errorf("%d ends", ends)
				}
			})
		}
	}
}

// A second OnBody is refused: the first callback gets the whole body.
func TestOnBodyTwice(t *testing.T) {
	release := make(chan struct{})
	tr := fresh(t, &Transport{})
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-release
		io.WriteString(w, "text")
	}).URL
	got := make(chan string, 1)
	tr.Do(request(t, "GET", url, nil), func(r *http.Response, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		all := ""
		OnBody(r, func(p []byte, err error) {
			if all += string(p); err != nil {
				got <- all
			}
		})
		if err := OnBody(r, func([]byte, error) { t.Error("the second callback is called") }); err == nil {
			t.Error("a second OnBody is accepted")
		}
		close(release)
	})
	select {
	case all := <-got:
		if all != "text" {
			t.Errorf("%q", all)
		}
	case <-time.After(patience):
		t.Fatal("the first callback is not called with the end")
	}
	noneInFlight(t, tr)
}
