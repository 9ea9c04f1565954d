package hub

import (
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// An encoder encodes the message of each form on first use.
type encoder struct {
	forms formTable
	name  string
	list  []bus.Publication
	made  [maxForms]*Message

	special *specialMessages // for members that get deltas; nil without one
}

func (e *encoder) message(id formID) *Message {
	m := e.made[id]
	if m == nil {
		m = e.forms[id].message(e.name, e.list)
		e.made[id] = m
	}
	return m
}

func (f *formEntry) message(channel string, list []bus.Publication) *Message {
	payload := f.Publications(channel, list)
	return &Message{payload, f.Share(payload)}
}

func (e *encoder) release() {
	releaseAll(&e.made)
	if e.special != nil {
		releaseAll(&e.special.deltas)
		releaseAll(&e.special.wholes)
	}
}

func releaseAll(made *[maxForms]*Message) {
	for _, m := range made {
		if m != nil {
			m.Release()
		}
	}
}

// A special is what a channel knows of a member that does not get every publication as it is.
type special struct {
	filter *policy.TagFilter // nil: all publications
	delta  bool              // publications are deltas to the one before, where that is shorter
	synced bool              // the member has the channel's last publication, which deltas build on
}

// specialMessages are an encoder's messages for members that get deltas.
type specialMessages struct {
	deltas [maxForms]*Message // for those that have the channel's last publication
	wholes [maxForms]*Message // for the others: the first publication is whole
}

// message returns the message of e for a special member with that form. base is the channel's last
// publication, or nil. A nil message: nothing is for the member.
func (sp *special) message(e *encoder, id formID, base *bus.Publication) *Message {
	switch {
	case sp == nil: // it has left
		return nil
	case sp.delta:
		if e.special == nil {
			e.special = new(specialMessages)
		}
		made := &e.special.deltas[id]
		if !sp.synced || base == nil {
			made, base = &e.special.wholes[id], nil
		}
		sp.synced = true
		if *made == nil {
			f := &e.forms[id]
			payload := f.Form.(DeltaForm).Deltas(e.name, e.list, base)
			*made = &Message{payload, f.Share(payload)}
		}
		return *made
	}
	list := sp.filter.Select(e.list)
	switch len(list) {
	case 0:
		return nil
	case len(e.list):
		return e.message(id)
	}
	return &Message{Payload: e.forms[id].Publications(e.name, list)}
}

// A noticeEncoder encodes the notice for each form on first use.
type noticeEncoder struct {
	forms  formTable
	name   string
	notice bus.Notice
	made   [maxForms]*Message
}

// message returns nil for a form that has no notices.
func (e *noticeEncoder) message(id formID) *Message {
	if made := e.made[id]; made != nil {
		return made
	}
	f := &e.forms[id]
	payload := f.Notice(e.name, e.notice)
	if payload == nil {
		return nil
	}
	e.made[id] = &Message{payload, f.Share(payload)}
	return e.made[id]
}

func (e *noticeEncoder) release() { releaseAll(&e.made) }

// envelope estimates the bytes of a message besides its data, channel and user.
const envelope = 128

// EncodedSize estimates the size of list as a message.
func EncodedSize(channel string, list []bus.Publication) (size int) {
	for i := range list {
		size += envelope + len(channel) + len(list[i].User) + list[i].Size()
	}
	return size
}
