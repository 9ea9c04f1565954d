// Package httpscript runs sessions of HTTP clients and handlers that are written down in testdata.
// It is for tests.
//
// A file is a list of cases. A case is a list of commands, and what comes of each stands below it:
//
//		== The time between two requests is IdleTimeout (RFC 9112 section 9.8)
//		server IdleTimeout=1s PipelineDepth=1,3
//		handler /long: wait 2s; write done
//		send GET /0
//		run 900ms
//		= 200 "/0"
//		run 200ms
//		= ended
//
//	  - "==" begins a case with its name, and "#" a comment. Settings and handlers that stand before
//	    the first case are for all.
//	  - "=" is a line of output. If a setting of the server has several values, the case runs with
//	    each: "=PipelineDepth=3" is a line of the runs with that one, "=net/http" of those on that
//	    server.
//	  - A word that has spaces or other special bytes is a Go string, and 4096*x is 4096 bytes.
//
// A handler is a list of steps (Handler), most of them named as the method that they call. The
// commands of a client are those of the test that runs the file. Those of HTTP/2 are frames
// (Frame).
//
// "go test -update" writes the output that comes into the file, for a reader to judge.
package httpscript
