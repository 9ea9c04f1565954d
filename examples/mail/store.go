package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A store keeps the mail of all users, in the model of IMAP (RFC 9051): a user has mailboxes, and a
// message has flags and a UID in its mailbox. UIDs grow and are never reused. Every change has its
// own number for the user, as in CONDSTORE (RFC 7162). A client that knows everything up to a
// number can request the later changes.
type store struct {
	now     func() time.Time
	publish func(user string, change []byte) // called in the order of changes for each user; it must not block

	mu       sync.Mutex
	accounts map[string]*account
}

type account struct {
	mu        sync.Mutex
	name      string
	mailboxes map[string]*mailbox
	modSeq    uint64   // of the last change
	changes   []change // the last of them, the oldest first, at most keptChanges
}

type mailbox struct {
	lastUID  uint32
	messages []*message // by UID
}

type message struct {
	UID     uint32    `json:"uid"`
	From    string    `json:"from"`
	Subject string    `json:"subject"`
	Text    string    `json:"text"`
	At      time.Time `json:"at"`
	Seen    bool      `json:"seen"`
}

// A change is one thing that has happened to a message: it is new, its flags are others, or it is
// gone.
type change struct {
	ModSeq  uint64    `json:"modseq"`
	Kind    string    `json:"kind"` // new, flags or gone
	Mailbox string    `json:"mailbox"`
	UID     uint32    `json:"uid"`
	Message *message  `json:"message,omitempty"` // if it is new or has other flags: as it is then
	At      time.Time `json:"at"`
}

const (
	keptChanges = 1000    // for each user; a client that is further behind reads its mailboxes again
	maxMessages = 10_000  // in one mailbox; then it is full
	maxText     = 1 << 16 // bytes of a message's text
	maxLine     = 256     // bytes of a subject, a sender, or a user's name
)

var mailboxNames = []string{"INBOX", "Archive", "Trash"}

var (
	errNoMailbox = errors.New("mail: there is no such mailbox: use INBOX, Archive or Trash")
	errNoMessage = errors.New("mail: there is no such message: it may have been moved or deleted")
	errFull      = fmt.Errorf("mail: the mailbox has %d messages and takes no more: delete some", maxMessages)
	errBadUser   = errors.New("mail: a user's name is 1 to 256 letters, digits, '-', '_' and '.'")
	errTooLong   = fmt.Errorf("mail: from and subject are at most %d bytes, the text %d", maxLine, maxText)
)

func newStore(publish func(user string, change []byte)) *store {
	return &store{now: time.Now, publish: publish, accounts: map[string]*account{}}
}

// open returns a user's account, which comes into being with the first use. Anything else would be
// a form to fill in.
func (s *store) open(user string) (*account, error) {
	if user == "" || len(user) > maxLine || strings.ContainsFunc(user, notInName) {
		return nil, errBadUser
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[user]
	if a == nil {
		a = &account{name: user, mailboxes: map[string]*mailbox{}}
		for _, name := range mailboxNames {
			a.mailboxes[name] = new(mailbox)
		}
		s.accounts[user] = a
	}
	return a, nil
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
}

// deliver puts a message into the user's INBOX.
func (s *store) deliver(user, from, subject, text string) error {
	if len(from) > maxLine || len(subject) > maxLine || len(text) > maxText {
		return errTooLong
	}
	return s.change(user, func(a *account) error {
		return s.add(a, "INBOX", message{From: from, Subject: subject, Text: text, At: s.now()})
	})
}

// setSeen sets the one flag that there is here.
func (s *store) setSeen(user, name string, uid uint32, seen bool) error {
	return s.change(user, func(a *account) error {
		_, i, err := a.find(name, uid)
		if err != nil {
			return err
		}
		m := *a.mailboxes[name].messages[i] // a copy, because subscribers have a pointer to the old one
		m.Seen = seen
		a.mailboxes[name].messages[i] = &m
		s.record(a, change{Kind: "flags", Mailbox: name, UID: uid, Message: &m})
		return nil
	})
}

// move takes a message to another mailbox, where it has another UID (RFC 9051 §6.4.8). From Trash
// to Trash it is deleted.
func (s *store) move(user, name string, uid uint32, to string) error {
	return s.change(user, func(a *account) error {
		box, i, err := a.find(name, uid)
		switch {
		case err != nil:
			return err
		case a.mailboxes[to] == nil:
			return errNoMailbox
		}
		m := *box.messages[i]
		if name != to {
			if err := s.add(a, to, m); err != nil {
				return err
			}
		} else if to != "Trash" {
			return nil
		}
		box.messages = slices.Delete(box.messages, i, i+1)
		s.record(a, change{Kind: "gone", Mailbox: name, UID: uid})
		return nil
	})
}

func (s *store) change(user string, f func(a *account) error) error {
	a, err := s.open(user)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return f(a)
}

// add puts m at the end of a mailbox. The caller holds a.mu.
func (s *store) add(a *account, name string, m message) error {
	box := a.mailboxes[name]
	if len(box.messages) >= maxMessages {
		return errFull
	}
	box.lastUID++
	m.UID = box.lastUID
	box.messages = append(box.messages, &m)
	s.record(a, change{Kind: "new", Mailbox: name, UID: m.UID, Message: &m})
	return nil
}

func (a *account) find(name string, uid uint32) (box *mailbox, i int, err error) {
	if box = a.mailboxes[name]; box == nil {
		return nil, 0, errNoMailbox
	}
	i, ok := slices.BinarySearchFunc(box.messages, uid, func(m *message,
		uid uint32) int {
		return int(m.UID) - int(uid)
	})
	if !ok {
		return nil, 0, errNoMessage
	}
	return box, i, nil
}

// record numbers a change, keeps it, and tells it. The caller holds a.mu, which is what keeps the
// order.
func (s *store) record(a *account, c change) {
	a.modSeq++
	c.ModSeq, c.At = a.modSeq, s.now()
	if len(a.changes) == keptChanges {
		a.changes = append(a.changes[:0], a.changes[1:]...)
	}
	a.changes = append(a.changes, c)
	text, err := json.Marshal(c)
	if err != nil {
		panic("mail: a change is always JSON: " + err.Error())
	}
	s.publish(a.name, text)
}

// A view is a mailbox as it is after the change of that number.
type view struct {
	ModSeq   uint64     `json:"modseq"`
	Messages []*message `json:"messages"`
}

func (s *store) list(user, name string) (v view, err error) {
	err = s.change(user, func(a *account) error {
		box := a.mailboxes[name]
		if box == nil {
			return errNoMailbox
		}
		v = view{ModSeq: a.modSeq, Messages: append([]*message{}, box.messages...)}
		return nil
	})
	return v, err
}

// An update is what has changed since some number. Reload says that it is too long ago: the
// mailboxes have to be read again.
type update struct {
	ModSeq  uint64   `json:"modseq"`
	Changes []change `json:"changes"`
	Reload  bool     `json:"reload,omitempty"`
}

func (s *store) since(user string, modSeq uint64) (u update, err error) {
	err = s.change(user, func(a *account) error {
		u = update{ModSeq: a.modSeq, Changes: []change{}}
		oldest := a.modSeq - uint64(len(a.changes)) // what must be known for the changes to be enough
		if modSeq < oldest || modSeq > a.modSeq {
			u.Reload = true
			return nil
		}
		u.Changes = append(u.Changes, a.changes[modSeq-oldest:]...)
		return nil
	})
	return u, err
}
