//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// faultVariable makes the test program a server that must be refused.
const faultVariable = "MYRIAD_BENCH_FAULT"

// faulty serves HTTP by hand, and wrongly.
func faulty(fault string) {
	switch fault {
	case "dies":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "babbles":
		fmt.Println("Welcome!")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("listening", ln.Addr())
	var answered atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answer(c, fault, &answered)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func answer(c net.Conn, fault string, answered *atomic.Int64) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if lines.Text() != "" {
			continue // the head goes on
		}
		status, body := "200 OK", "Hello, World!"
		switch late := answered.Add(1) > 500; {
		case fault == "body", fault == "body, later" && late:
			body = "Hello, Wörld"
		case fault == "status":
			status = "203 Nearly"
		case fault == "leaves, later" && late:
			return
		case fault == "dies, later" && late:
			fmt.Fprintln(os.Stderr, "out of luck")
			os.Exit(1)
		}
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nDate: Mon, 02 Jan 2006 15:04:05 "+
			"GMT\r\nContent-Length: %d\r\n\r\n%s",
			status, len(body), body)
	}
}

// A server whose answers are wrong, from the first on or later, is refused with the reason, and no
// figure of it is printed.
func TestRefusesWrongServers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for fault, reason := range map[string]string{
		"dies":          "no licence found",
		"babbles":       `the server's first line is "Welcome!"`,
		"body":          `its answer is wrong: the body is "Hello, Wörld"`,
		"status":        `its answer is wrong: the status is "203 Nearly", not 200`,
		"body, later":   "is not like",
		"leaves, later": "closed a connection",
		"dies, later":   "the server says: out of luck",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv(faultVariable, fault)
			refused := func(out string, err error) bool {
				return err != nil && strings.Contains(out, "wrong not measured: ") && strings.Contains(out, reason)
			}
			out, err := benchFor(t, 300*time.Millisecond, refused, "run", "http-100", "--rounds", "1", "--conns", "10",
				"--server", "wrong="+self, "--only", "wrong")
			if !refused(out, err) {
				t.Errorf("not refused for %q: %v\n%s", reason, err, out)
			}
			if strings.Contains(out, "server CPU") {
				t.Errorf("there are figures:\n%s", out)
			}
		})
	}
}

// The same server without a fault is measured: what is refused above is refused for its fault.
func TestTakesForeignServer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(faultVariable, "none")
	out, err := benchFor(t, 200*time.Millisecond, measured, "run", "http-100", "--rounds", "2", "--conns", "10",
		"--server", "right="+self, "--only", "right")
	if err != nil || strings.Contains(out, "not measured") || !strings.Contains(out, "× right") {
		t.Errorf("%v\n%s", err, out)
	}
}
