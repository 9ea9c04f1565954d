package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/handover"
)

// This file is --handover: a unix socket by which processes find the running server. A connection
// is for one request, and its answer is one line of JSON:
//
//	take     A new process is ready to take over. Behind the answer, with which the listening socket
//	         itself goes, comes what package handover sends.
//	upgrade  myriad upgrade wants the server to start a new process. The answer is the outcome.
//
// The socket moves to the process that takes over. So its path leads to exactly one process at any
// time: connections that are made while it moves wait in the kernel.

const (
	takeRequest    = "take"
	upgradeRequest = "upgrade"
)

// An answer is what the server says to a request.
type answer struct {
	Refused string   `json:"refused,omitempty"` // why nothing has happened
	Go      bool     `json:"go,omitempty"`      // to take
	Path    string   `json:"path,omitempty"`    // to take: the --handover of the server; empty: it has none
	Outcome *outcome `json:"outcome,omitempty"` // to upgrade
}

const (
	maxRequest  = 64       // bytes
	maxAnswer   = 16 << 10 // bytes
	maxRequests = 16       // connections at a time; further ones wait
	// requestWait is how long a process that has connected may take to make its request: a new
	// server prepares itself meanwhile.
	requestWait = time.Minute
	// answerWait is how long an answer may take that needs no work.
	answerWait = 10 * time.Second
)

// checkHandoverPath returns what is wrong with the value of --handover.
func checkHandoverPath(path string) error {
	a := address{option: "--handover", text: path, target: path}
	if err := a.checkPath(); err != nil {
		return err
	}
	if most := maxUnixPath - len(".4194304"); len(path) > most { // handover.Listen begins with another name
		return a.wrong(fmt.Sprintf("the path has %d bytes; it may have %d", len(path), most))
	}
	return nil
}

// checkSocket fails if there is something at the path other than a socket.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSocket == 0 {
		return errors.New("the file exists and is no socket: remove it, or choose another path")
	}
	return nil // what else is wrong is found by using it
}

// isNobody reports whether dialling a path has failed because no process listens there.
func isNobody(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// readLine reads a line of at most that many bytes, and not a byte more.
func readLine(r io.Reader, most int) (string, error) {
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, one); err != nil {
			return string(line), err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		if line = append(line, one[0]); len(line) > most {
			return "", fmt.Errorf("a line of more than %d bytes", most)
		}
	}
}

// write sends the answer, and file with it, unless that is nil.
func (a answer) write(nc *net.UnixConn, file *os.File) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := nc.SetWriteDeadline(time.Now().Add(answerWait)); err != nil {
		return err
	}
	return writeWith(nc, append(line, '\n'), file)
}

// readAnswer reads an answer, and the socket that may come with it.
func readAnswer(nc *net.UnixConn) (a answer, file *os.File, err error) {
	r := &rightsReader{nc: nc}
	line, err := readLine(r, maxAnswer)
	if err == nil {
		err = json.Unmarshal([]byte(line), &a)
	}
	if err == nil && a.Refused == "" && !a.Go && a.Outcome == nil {
		err = fmt.Errorf("it is %.100q", line)
	}
	if err != nil {
		return a, nil, errors.Join(fmt.Errorf("no answer of a server: %w", err), r.close())
	}
	return a, r.take(), nil
}

// ask sends a request, and reads the answer.
func ask(nc *net.UnixConn, request string) (a answer, file *os.File, err error) {
	_, failed := io.WriteString(nc, request+"\n") // if it fails, there may be an answer
	if a, file, err = readAnswer(nc); err != nil {
		err = errors.Join(failed, err)
	}
	return a, file, err
}

// A handoverSocket is the socket of --handover in the process that listens there. A nil one does
// nothing.
type handoverSocket struct {
	path string
	ln   *net.UnixListener
	made fs.FileInfo // of the path, when it led here

	mu      sync.Mutex
	shared  bool                   // another process has the socket, too: the path stays
	waiting map[*net.UnixConn]bool // for a request
	refusal error                  // of all requests; nil: they are served
	running sync.WaitGroup
}

// listenForHandovers listens on the path. It replaces the socket of a process that has ended.
func listenForHandovers(path string) (*handoverSocket, error) {
	err := removeStale(path)
	if err != nil {
		return nil, fmt.Errorf("--handover %q: %w", path, err)
	}
	ln, err := handover.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("--handover %q: %w%s", path, cause(err), remedy(err))
	}
	return newHandoverSocket(path, ln)
}

// inheritHandovers goes on with the predecessor's socket, which is that one's until own is called.
func inheritHandovers(path string, file *os.File) (*handoverSocket, error) {
	defer file.Close() // ln has a duplicate
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("--handover %q: %w", path, err)
	}
	unix, is := ln.(*net.UnixListener)
	if !is {
		return nil, errors.Join(fmt.Errorf("--handover %q: the predecessor's is a %T", path, ln), ln.Close())
	}
	h, err := newHandoverSocket(path, unix)
	if h != nil {
		h.shared = true
	}
	return h, err
}

func newHandoverSocket(path string, ln *net.UnixListener) (*handoverSocket, error) {
	ln.SetUnlinkOnClose(false) // see remove
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--handover %q: %w", path, err), ln.Close())
	}
	return &handoverSocket{path: path, ln: ln, made: made, waiting: make(map[*net.UnixConn]bool)}, nil
}

// file returns a duplicate of the listening socket, and its path.
func (h *handoverSocket) file() (*os.File, string, error) {
	if h == nil {
		return nil, "", nil
	}
	f, err := h.ln.File()
	return f, h.path, err
}

// serve serves requests until close. What serves one request closes its connection.
func (h *handoverSocket) serve(take, upgrade func(nc *net.UnixConn)) {
	room := make(chan struct{}, maxRequests)
	for {
		room <- struct{}{}
		nc, err := h.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free, for instance
			<-room
			time.Sleep(acceptPause)
			continue
		}
		if !h.begin(nc) {
			h.refuse(nc)
			<-room
			continue
		}
		go func() {
			defer func() {
				h.running.Done()
				<-room
			}()
			switch request, err := h.request(nc); {
			case h.refuse(nc):
			case err != nil:
				_ = nc.Close() // it has gone, or it is no program of ours
			case request == takeRequest:
				take(nc)
			case request == upgradeRequest:
				upgrade(nc)
			default:
				_ = answer{Refused: fmt.Sprintf("there is no request %q", request)}.write(nc, nil)
				_ = nc.Close()
			}
		}()
	}
}

// acceptPause is how long serve waits after a failure.
const acceptPause = 100 * time.Millisecond

// begin has close wait for what serves the connection. It returns false after close.
func (h *handoverSocket) begin(nc *net.UnixConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusal != nil {
		return false
	}
	_ = nc.SetDeadline(time.Now().Add(requestWait)) // if it fails, reading does
	h.waiting[nc] = true
	h.running.Add(1)
	return true
}

// request reads a request of a process that may make one.
func (h *handoverSocket) request(nc *net.UnixConn) (string, error) {
	request, err := readLine(nc, maxRequest)
	h.mu.Lock()
	delete(h.waiting, nc)
	h.mu.Unlock()
	if err == nil {
		err = handover.CheckPeer(nc)
	}
	return request, errors.Join(err, nc.SetDeadline(time.Time{}))
}

// refuse answers and closes the connection if all requests are refused. Otherwise it returns false.
func (h *handoverSocket) refuse(nc *net.UnixConn) bool {
	h.mu.Lock()
	refusal := h.refusal
	h.mu.Unlock()
	if refusal == nil {
		return false
	}
	_ = answer{Refused: refusal.Error()}.write(nc, nil)
	_ = nc.Close()
	return true
}

// own says that no other process has the socket any more.
func (h *handoverSocket) own() { h.share(false) }

func (h *handoverSocket) share(shared bool) {
	if h != nil {
		h.mu.Lock()
		h.shared = shared
		h.mu.Unlock()
	}
}

// leave stops accepting: the process that has taken over accepts. Requests that have been accepted
// are refused.
func (h *handoverSocket) leave() {
	h.share(true)
	h.stop(errHasMoved)
}

// remove stops accepting, and removes the path unless it leads to another process by now.
func (h *handoverSocket) remove() {
	if h == nil {
		return
	}
	h.mu.Lock()
	shared := h.shared
	h.mu.Unlock()
	if now, err := os.Lstat(h.path); err == nil && !shared && os.SameFile(now, h.made) {
		_ = os.Remove(h.path) // if it stays, the next server replaces it
	}
	h.stop(errShutsDown)
}

// stop does nothing the second time.
func (h *handoverSocket) stop(refusal error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusal != nil {
		return
	}
	h.refusal = refusal
	_ = h.ln.Close()
	for nc := range h.waiting {
		_ = nc.SetReadDeadline(time.Now())
	}
}

// wait returns when all requests have been answered. It is called after leave or remove.
func (h *handoverSocket) wait() {
	if h != nil {
		h.running.Wait()
	}
}
