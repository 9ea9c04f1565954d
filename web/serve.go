package web

import (
	"net"
	"net/http"
)

// ListenAndServe listens on the TCP address addr (":http" if it is empty) and serves h on the
// default engine, as http.ListenAndServe does. If h is nil, it serves http.DefaultServeMux. It
// returns an error always. Use a Server for timeouts, limits and Shutdown.
func ListenAndServe(addr string, h http.Handler) error {
	return (&Server{Addr: addr, Handler: h}).ListenAndServe()
}

// ListenAndServeTLS is ListenAndServe for HTTPS, on ":https" if addr is empty. The files hold a
// certificate with its chain, and its key, in PEM.
func ListenAndServeTLS(addr, certFile, keyFile string, h http.Handler) error {
	return (&Server{Addr: addr, Handler: h}).ListenAndServeTLS(certFile, keyFile)
}

// Serve accepts connections from l and serves h on the default engine, as http.Serve does; h may be
// nil: http.DefaultServeMux. It closes l and returns an error always: closing l ends it.
// Server.Serve says which listeners cost goroutines.
func Serve(l net.Listener, h http.Handler) error {
	return (&Server{Handler: h}).Serve(l)
}

// ServeTLS is Serve for HTTPS; l gives connections without TLS. The files are those of
// ListenAndServeTLS. Without them it fails and leaves l open.
func ServeTLS(l net.Listener, h http.Handler, certFile, keyFile string) error {
	return (&Server{Handler: h}).ServeTLS(l, certFile, keyFile)
}
