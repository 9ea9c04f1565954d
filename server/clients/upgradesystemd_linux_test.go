package clients

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A manager is the end of sd_notify(3) that systemd has. Like systemd with NotifyAccess=main, the
// default of Type=notify, it takes what the main process says, and nothing of others.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	main int
}

func newManager(t *testing.T) (m *manager, path string) {
	t.Helper()
	path = filepath.Join(shortFolder(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(patience))
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	}); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return &manager{t: t, conn: conn}, path
}

// next returns what the main process says next. The process that it names is the main one then.
func (m *manager) next() string {
	m.t.Helper()
	p, control := make([]byte, 4096), make([]byte, 256)
	for {
		n, size, _, _, err := m.conn.ReadMsgUnix(p, control)
		if err != nil {
			m.t.Fatal(err)
		}
		messages, err := syscall.ParseSocketControlMessage(control[:size])
		if err != nil || len(messages) == 0 {
			m.t.Fatalf("a datagram without its sender: %v", err)
		}
		sender, err := syscall.ParseUnixCredentials(&messages[0])
		if err != nil {
			m.t.Fatal(err)
		}
		if int(sender.Pid) != m.main {
			continue
		}
		if pid, is := strings.CutPrefix(string(p[:n]), "MAINPID="); is {
			m.main, _ = strconv.Atoi(pid)
		}
		return string(p[:n])
	}
}

// want waits for a message of the main process, behind keep-alives.
func (m *manager) want(message string) {
	m.t.Helper()
	got := m.next()
	for got == "WATCHDOG=1" && message != got {
		got = m.next()
	}
	if got != message {
		m.t.Fatalf("process %d says %q, want %q", m.main, got, message)
	}
}

// Under systemd each new process becomes the main one by the word of the old one, sends the
// keep-alives, and says when it stops.
func TestUpgradeUnderSystemd(t *testing.T) {
	t.Parallel()
	m, notify := newManager(t)
	path := filepath.Join(shortFolder(t), "h")
	const script = `WATCHDOG_PID=$$ exec "$0" serve --listen 127.0.0.1:0 --handover "$H"`
	p := start(t, []string{"NOTIFY_SOCKET=" + notify, "WATCHDOG_USEC=1000000", "H=" + path}, "sh", "-c", script, binary)
	addr := p.want(`url=(http://[0-9.:]+)`)[1]
	m.main = p.cmd.Process.Pid
	m.want("READY=1\nSTATUS=serving " + addr)
	m.want("WATCHDOG=1")
	for range 3 {
		pid := upgradeNow(t, "--handover", path)
		m.want(fmt.Sprintf("MAINPID=%d", pid))
		if m.main != pid {
			t.Fatalf("the main process is %d, want %d", m.main, pid)
		}
		for range 2 {
			for got := m.next(); got != "WATCHDOG=1"; got = m.next() {
				if got != "READY=1\nSTATUS=serving "+addr { // if it comes behind MAINPID
					t.Fatalf("the new process says %q", got)
				}
			}
		}
	}
	if err := syscall.Kill(m.main, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.want("STOPPING=1")
}
