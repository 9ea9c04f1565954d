// Command operated is a server with all that operators want of one. It has metrics of its requests
// and of its loops, an access log, profiles, and a page about its connections. Certificates are
// replaced while it serves, and it ends in order.
//
//	go run ./examples/operated
//	curl http://127.0.0.1:8080/hello
//	curl http://127.0.0.1:9090/metrics
//	go tool pprof http://127.0.0.1:9090/debug/pprof/profile?seconds=5
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/debug"
	"github.com/myriad-go/myriad/web"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port for clients")
	admin := flag.String("admin", "127.0.0.1:9090", "host:port for operators")
	cert := flag.String("cert", "", "PEM file with the certificate, for HTTPS; SIGHUP has it read again")
	key := flag.String("key", "", "PEM file with its key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *admin, &certificate{certFile: *cert, keyFile: *key}); err != nil {
		log.Fatal(err)
	}
}

// run serves clients and operators until ctx ends. Both are on one engine.
func run(ctx context.Context, addr, admin string, c *certificate) error {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	public := &web.Server{Engine: engine, Handler: logged(measured(routes(), registry), slog.Default()),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	private := &web.Server{Engine: engine, Handler: operators(engine, registry)}
	hangups := make(chan os.Signal, 1)
	if c.certFile != "" {
		if err := c.read(); err != nil {
			return errors.Join(err, engine.Shutdown(ctx))
		}
		public.TLSConfig = c.config()
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	if err := listen(public, addr, private, admin); err != nil {
		return errors.Join(err, engine.Shutdown(ctx))
	}
	c.follow(ctx, hangups)
	return end(engine, public, private)
}

func listen(public *web.Server, addr string, private *web.Server, admin string) error {
	listen := public.Listen
	if public.TLSConfig != nil {
		listen = func(network, addr string) (*web.Listener, error) { return public.ListenTLS(network, addr, "", "") }
	}
	ln, err := listen("tcp", addr)
	if err != nil {
		return err
	}
	operators, err := private.Listen("tcp", admin)
	if err != nil {
		return err
	}
	log.Print("listening on ", ln.Addr())
	log.Print("operators at ", operators.Addr())
	return nil
}

// end lets requests that have begun end in ten seconds, and closes what is open then.
func end(engine *myriad.Engine, public, private *web.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(public.Shutdown(ctx), private.Shutdown(ctx), engine.Shutdown(ctx))
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	return mux
}

// measured counts and times requests, by method and status.
func measured(next http.Handler, to prometheus.Registerer) http.Handler {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "http_requests_total",
		Help: "Requests that were answered."}, []string{"code", "method"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "http_request_duration_seconds",
		Help: "Time in handlers."}, []string{"code", "method"})
	to.MustRegister(count, took)
	return promhttp.InstrumentHandlerDuration(took, promhttp.InstrumentHandlerCounter(count, next))
}

// operators serves what clients must not see.
func operators(engine *myriad.Engine, registry *prometheus.Registry) http.Handler {
	registry.MustRegister(collector{engine}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /debug/myriad", debug.Handler(engine))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return mux
}
