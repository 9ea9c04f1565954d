package push

// This file sends publications to members that do not get what the others get: those with a filter,
// and those that get deltas.

// A special is what a channel knows of such a member. The channel's mu guards it.
type special struct {
	filter *TagFilter // nil: all publications
	delta  bool       // publications are deltas to the one before, where that is shorter
	synced bool       // the member has the channel's last publication, which deltas build on
}

// A DeltaForm is a form whose clients can apply deltas.
type DeltaForm interface {
	Form
	// Deltas encodes list as one message. Each publication may be a delta to the one before it, the
	// first one to base; nil: it is sent whole.
	Deltas(channel string, list []Publication, base *Publication) []byte
}

// specialMessages are an encoder's messages for members that get deltas.
type specialMessages struct {
	deltas [maxForms]*Message // for those that have the channel's last publication
	wholes [maxForms]*Message // for the others: the first publication is whole
}

// enterSpecial makes m special if w asks for it. The caller holds ch.mu, and m is a member.
func (ch *channel) enterSpecial(m *member, w *SubscribeCommand) {
	if w.Filter == nil && !w.Delta {
		return
	}
	if ch.specials == nil {
		ch.specials = make(map[*member]*special)
	}
	ch.specials[m] = &special{filter: w.Filter, delta: w.Delta}
	m.special = true
	if w.Delta {
		ch.deltas++
	}
}

// leaveSpecial forgets m. The caller holds ch.mu.
func (ch *channel) leaveSpecial(m *member) {
	if !m.special {
		return
	}
	if ch.specials[m].delta {
		ch.deltas--
	}
	if ch.deltas == 0 {
		ch.base = nil
	}
	delete(ch.specials, m)
}

// keepBase keeps the last publication, if a member gets deltas to it. The caller holds ch.mu.
func (ch *channel) keepBase(list []Publication) {
	if ch.deltas > 0 {
		last := list[len(list)-1]
		ch.base = &last
	}
}

// grantsDelta reports whether w gets deltas: not if publications may be left out for the member,
// because a delta builds on the one before.
func (ch *channel) grantsDelta(s *Session, w *SubscribeCommand) bool {
	_, can := s.form().Form.(DeltaForm)
	return w.Delta && can && w.Filter == nil && ch.rules.Slow == SlowDisconnect
}

// specialMessage returns the message for a special member. nil: nothing is for it. The caller holds
// ch.mu.
func (e *encoder) specialMessage(ch *channel, m *member) *Message {
	sp := ch.specials[m]
	switch {
	case sp == nil: // it has left
		return nil
	case sp.delta:
		if e.special == nil {
			e.special = new(specialMessages)
		}
		made, base := &e.special.deltas[m.s.formID], ch.base
		if !sp.synced || base == nil {
			made, base = &e.special.wholes[m.s.formID], nil
		}
		sp.synced = true
		if *made == nil {
			f := m.s.form()
			payload := f.Form.(DeltaForm).Deltas(e.name, e.list, base)
			*made = &Message{payload, f.Share(payload)}
		}
		return *made
	}
	list := sp.filter.selected(e.list)
	switch len(list) {
	case 0:
		return nil
	case len(e.list):
		return e.message(m.s.formID)
	}
	return &Message{Payload: m.s.form().Publications(e.name, list)}
}
