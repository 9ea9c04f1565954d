package clients

import (
	bytesof "encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An interposer is a program that an upgrade starts in place of the new server. It starts that
// itself, and passes on what the two processes say to each other, one message at a time. So a test
// can kill either of them between any two messages. The environment tells it what to do:
//
//	UPGRADE_RELAY   the path of the server
//	UPGRADE_KILL    VICTIM N before|after: kill -9 of the process "old" or "new", when message N has
//	                come, before it is passed on or after that;
//	                VICTIM MICROSECONDS in: so long after the first message
//	                told N before|after: SIGTERM for the old one, and no kill
//
// It says what it does on lines of the standard output that begin with "relay: ". One says which
// process is the new server, and the last one is "killed" or "over".
type interposer struct {
	old, new int // processes
	toOld    *net.UnixConn
	toNew    *net.UnixConn

	victim string
	number int // of the message; -1: at a moment
	after  bool

	mu    sync.Mutex
	seen  int  // messages
	moved int  // descriptors of connections that were passed on
	had   bool // the new process has said that it has all
	over  bool
}

const (
	relayVariable     = "UPGRADE_RELAY"
	relayKillVariable = "UPGRADE_KILL"
	handoverVariable  = "MYRIAD_HANDOVER_FD"
)

func init() { relayUpgrade = runRelay }

// runRelay is the life of an interposer.
func runRelay(server string) error {
	r := &interposer{old: os.Getppid()}
	when := ""
	if _, err := fmt.Sscan(os.Getenv(relayKillVariable), &r.victim, &r.number, &when); err != nil {
		return err
	}
	r.after = when == "after"
	inherited, err := strconv.Atoi(os.Getenv(handoverVariable))
	if err != nil {
		return err
	}
	if r.toOld, err = unixConn(inherited); err != nil {
		return err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if r.toNew, err = unixConn(fds[0]); err != nil {
		return err
	}
	its := os.NewFile(uintptr(fds[1]), "relay")
	cmd := exec.Command(server, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{its}
	for _, one := range os.Environ() {
		if name, _, _ := strings.Cut(one, "="); name != relayVariable && name != handoverVariable {
			cmd.Env = append(cmd.Env, one)
		}
	}
	cmd.Env = append(cmd.Env, handoverVariable+"=3")
	if err := cmd.Start(); err != nil {
		return err
	}
	its.Close()
	r.new = cmd.Process.Pid
	var ways sync.WaitGroup
	if r.victim == "told" { // the old process takes this one for the new one
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		ways.Go(func() {
			select {
			case <-told:
				_ = cmd.Process.Signal(syscall.SIGTERM)
			case <-time.After(patience): // the test fails then
			}
		})
	}
	fmt.Println("relay: new", r.new)
	ways.Go(func() { r.pass("old", r.toOld, r.toNew) })
	ways.Go(func() { r.pass("new", r.toNew, r.toOld) })
	if when == "in" {
		time.Sleep(time.Duration(r.number) * time.Microsecond)
		r.mu.Lock()
		if !r.over {
			r.kill("nothing")
		}
		r.mu.Unlock()
	}
	ways.Wait()
	fmt.Println("relay: over")
	return nil
}

func unixConn(fd int) (*net.UnixConn, error) {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "relay")
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return nc.(*net.UnixConn), nil
}

// pass passes a line on in one direction, the request or its answer, and then messages, until their
// sender closes the channel.
func (r *interposer) pass(sender string, from, to *net.UnixConn) {
	for one := []byte{0}; one[0] != '\n'; {
		if _, err := io.ReadFull(from, one); err != nil {
			to.CloseWrite()
			return
		}
		if _, err := to.Write(one); err != nil {
			return
		}
	}
	for {
		m, err := readRelayed(from)
		r.mu.Lock()
		switch {
		case err != nil:
			r.over = true
			to.CloseWrite()
			r.mu.Unlock()
			return
		case m.kind == haveKind && sender == "new":
			r.had = true
		}
		now := r.seen == r.number
		r.seen++
		if now && !r.after {
			if m.kind == haveKind && r.victim == "new" {
				r.had = false // the old process does not receive it
			}
			r.kill(sender)
		}
		if err = m.write(to); err == nil && m.kind == connsKind {
			r.moved += len(m.fds)
		}
		m.close()
		if now && r.after {
			r.kill(sender)
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// kill kills the victim, and waits until it has no descriptors any more. Then the relay ends, and
// with it the channel and the process at the survivor's other end. The relay is locked.
func (r *interposer) kill(sender string) {
	pid, with := r.new, syscall.SIGKILL
	switch r.victim {
	case "old":
		pid = r.old
	case "told":
		pid, with = r.old, syscall.SIGTERM
	}
	if err := syscall.Kill(pid, with); err != nil {
		fmt.Println("relay: failed", err)
		os.Exit(1)
	}
	if r.victim == "told" {
		return
	}
	for !hasEnded(pid) {
		time.Sleep(100 * time.Microsecond)
	}
	fmt.Printf("relay: killed %s at message %d of the %s one, moved %d, all had: %t\n", r.victim, r.seen, sender,
		r.moved,
		r.had)
	os.Exit(0)
}

// A relayed is a message of package handover: a header of seven bytes, with which its descriptors
// go, and a body.
type relayed struct {
	header, body []byte
	kind         byte
	fds          []int
}

// Messages have connections, or say that the new process has all of them.
const (
	connsKind = 6
	haveKind  = 8
)

func readRelayed(from *net.UnixConn) (m relayed, err error) {
	m.header = make([]byte, 7)
	room := make([]byte, syscall.CmsgSpace(4*256))
	n, rights, _, _, err := from.ReadMsgUnix(m.header, room)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return m, err
	}
	all, err := syscall.ParseSocketControlMessage(room[:rights])
	if err != nil {
		return m, err
	}
	for i := range all {
		fds, err := syscall.ParseUnixRights(&all[i])
		if err != nil {
			return m, err
		}
		m.fds = append(m.fds, fds...)
	}
	if _, err := io.ReadFull(from, m.header[n:]); err != nil {
		return m, err
	}
	m.kind = m.header[4]
	m.body = make([]byte, bytesof.BigEndian.Uint32(m.header))
	_, err = io.ReadFull(from, m.body)
	return m, err
}

func (m *relayed) write(to *net.UnixConn) error {
	var rights []byte
	if len(m.fds) > 0 {
		rights = syscall.UnixRights(m.fds...)
	}
	if _, _, err := to.WriteMsgUnix(m.header, rights, nil); err != nil {
		return err
	}
	_, err := to.Write(m.body)
	return err
}

// close closes the relay's own descriptors.
func (m *relayed) close() {
	for _, fd := range m.fds {
		syscall.Close(fd)
	}
}
