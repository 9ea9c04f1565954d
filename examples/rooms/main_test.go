package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/websocket"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// A visitor is the other end of a guest.
type visitor struct {
	t *testing.T
	*websocket.Conn
}

func visit(t *testing.T, addr, room, name string) visitor {
	t.Helper()
	c, _, err := websocket.Dial(context.Background(), "ws://"+addr+"/rooms/"+room+"?name="+url.QueryEscape(name),
		&websocket.DialOptions{Options: websocket.Options{Pull: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Abort(nil) })
	return visitor{t, c}
}

// receives waits for these lines, in this order, without others between them.
func (v visitor) receives(want ...string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	for _, w := range want {
		if _, got, err := v.Read(ctx); err != nil || string(got) != w {
			v.t.Fatalf("received %q, %v; want %q", got, err, w)
		}
	}
}

func (v visitor) says(line string) {
	v.t.Helper()
	if err := v.Write(websocket.OpText, []byte(line)); err != nil {
		v.t.Fatal(err)
	}
}

// ends waits for the close frame.
func (v visitor) ends(code websocket.StatusCode) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	for {
		if _, _, err := v.Read(ctx); err != nil {
			if got := websocket.CloseStatus(err); got != code {
				v.t.Errorf("closed with %d (%v), want %d", got, err, code)
			}
			return
		}
	}
}

func guests(t *testing.T, addr string) map[string][]string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/rooms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	list := map[string][]string{}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestRooms(t *testing.T) {
	addr := exampletest.Serve(t, routes(newHouse()))
	ann := visit(t, addr, "go", "Ann")
	ann.receives("Ann has come")
	other := visit(t, addr, "c", "Cy")
	other.receives("Cy has come")
	ann.says("hello")
	ann.receives("Ann: hello")
	bob := visit(t, addr, "go", "Bob")
	bob.receives("Ann has come", "Ann: hello", "Bob has come")
	ann.receives("Bob has come")
	if got := guests(t, addr); !slices.Equal(got["go"], []string{"Ann", "Bob"}) ||
		!slices.Equal(got["c"], []string{"Cy"}) {
		t.Errorf("guests: %v", got)
	}
	resp, err := http.PostForm("http://"+addr+"/kick", url.Values{"room": {"go"}, "name": {"Bob"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("kick: %s", resp.Status)
	}
	bob.ends(websocket.StatusPolicyViolation)
	ann.receives("Bob has left")
	ann.says("only me")
	ann.receives("Ann: only me")
}

// A newcomer gets the last lines and no more, and a room that was empty has forgotten.
func TestRecentLines(t *testing.T) {
	addr := exampletest.Serve(t, routes(newHouse()))
	ann := visit(t, addr, "go", "Ann")
	ann.receives("Ann has come")
	var want []string
	for i := range maxLines + 10 {
		ann.says(fmt.Sprint(i))
		want = append(want, fmt.Sprint("Ann: ", i))
	}
	ann.receives(want...)
	bob := visit(t, addr, "go", "Bob")
	bob.receives(append(want[10:], "Bob has come")...)
	ann.receives("Bob has come")
	bob.Close(websocket.StatusNormalClosure, "")
	ann.receives("Bob has left")
	ann.Close(websocket.StatusNormalClosure, "")
	for len(guests(t, addr)) > 0 {
		time.Sleep(time.Millisecond) // the room closes when the server has seen both leave
	}
	visit(t, addr, "go", "Eve").receives("Eve has come")
}

// What many say at once reaches all in one order.
func TestOneOrder(t *testing.T) {
	addr := exampletest.Serve(t, routes(newHouse()))
	const visitors, lines = 8, 25
	all := make([]visitor, visitors)
	for i := range all {
		all[i] = visit(t, addr, "go", fmt.Sprint(i))
		for j := range i + 1 { // what was said before, for the newcomer, and that it has come
			all[i].receives(fmt.Sprint(j, " has come"))
		}
		for _, v := range all[:i] {
			v.receives(fmt.Sprint(i, " has come"))
		}
	}
	var talking sync.WaitGroup
	defer talking.Wait()
	for _, v := range all {
		talking.Go(func() {
			for n := range lines {
				_ = v.Write(websocket.OpText, fmt.Append(nil, n)) // a line that is lost is missed below
			}
		})
	}
	first := all[0].lines(visitors * lines)
	for i, v := range all[1:] {
		if got := v.lines(visitors * lines); !slices.Equal(got, first) {
			t.Errorf("guest %d received another order than guest 0:\n%q\n%q", i+1, got, first)
		}
	}
}

// lines reads a number of lines.
func (v visitor) lines(n int) (got []string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	for range n {
		_, line, err := v.Read(ctx)
		if err != nil {
			v.t.Fatalf("after %d lines: %v", len(got), err)
		}
		got = append(got, string(line))
	}
	return got
}

func TestShutdown(t *testing.T) {
	cmd, base := exampletest.Program(t)
	ann := visit(t, strings.TrimPrefix(base, "http://"), "go", "Ann")
	ann.receives("Ann has come")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ann.ends(websocket.StatusGoingAway)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

func TestRefused(t *testing.T) {
	addr := exampletest.Serve(t, routes(newHouse()))
	resp, err := http.Get("http://" + addr + "/rooms/go")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(text), "?name=") {
		t.Errorf("without a name: %s %q", resp.Status, text)
	}
}

func TestGuide(t *testing.T) {
	exampletest.Guide(t, "rooms.md", "house.go", "main.go")
	exampletest.Guide(t, "handover.md", "upgrade.go", "main.go")
}

// The program is upgraded three times while guests talk: each of them receives each line once, in
// order, no guest comes or leaves, and a newcomer gets what was said before.
func TestUpgradeUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	_, base := exampletest.Program(t, "--pid-file", file)
	addr := strings.TrimPrefix(base, "http://")
	pid := newPID(t, file, 0)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	const guests, lines = 20, 300
	all := make([]visitor, guests)
	for i := range all {
		all[i] = visit(t, addr, "go", fmt.Sprint(i))
		for j := range i + 1 {
			all[i].receives(fmt.Sprint(j, " has come"))
		}
		for _, v := range all[:i] {
			v.receives(fmt.Sprint(i, " has come"))
		}
	}
	var said []string
	for i := range lines {
		line := fmt.Sprint("line ", i)
		all[0].says(line)
		said = append(said, "0: "+line)
		if i%100 == 50 {
			if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			for range 20 { // meanwhile
				all[0].says("more")
				said = append(said, "0: more")
			}
			pid = newPID(t, file, pid)
		}
	}
	for i, v := range all {
		if got := v.lines(len(said)); !slices.Equal(got, said) {
			t.Fatalf("guest %d received other lines", i)
		}
	}
	late := visit(t, addr, "go", "Eve")
	late.receives(append(slices.Clone(said[len(said)-maxLines:]), "Eve has come")...)
	all[guests-1].receives("Eve has come")
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late.ends(websocket.StatusGoingAway)
}

// newPID waits until another process has written its number.
func newPID(t *testing.T, file string, before int) int {
	t.Helper()
	for end := time.Now().Add(exampletest.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(file)
		if pid, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil && pid != before {
			return pid
		}
	}
	t.Fatal("no process has taken over")
	return 0
}
