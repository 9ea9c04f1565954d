package push

// This file lets a request of the API set rules of the namespace for the subscriptions that it
// makes.

// overrides are such rules, in the form of the API. nil: as the namespace says.
type overrides struct {
	Presence           *flag `json:"presence"`
	JoinLeave          *flag `json:"join_leave"`
	ForceRecovery      *flag `json:"force_recovery"`
	ForcePositioning   *flag `json:"force_positioning"`
	ForcePushJoinLeave *flag `json:"force_push_join_leave"`
}

type flag struct {
	Value bool `json:"value"`
}

// or returns the flag's value, or that of the namespace if there is no flag.
func (f *flag) or(rule bool) bool {
	if f == nil {
		return rule
	}
	return f.Value
}

// check returns an error for a rule that the namespace cannot follow for some of its subscribers.
func (o *overrides) check(rules *Namespace) error {
	switch {
	case o == nil || rules.Recovery:
		return nil
	case o.ForceRecovery.or(false):
		return badCall("override.force_recovery needs a namespace with the rule recovery")
	case o.ForcePositioning.or(false):
		return badCall("override.force_positioning needs a namespace with the rule recovery")
	}
	return nil
}

// apply changes the request and the grant of one subscription.
func (o *overrides) apply(w *SubscribeCommand) {
	if o == nil {
		return
	}
	w.grant.absent = !o.Presence.or(true)
	w.grant.announced = o.JoinLeave
	w.pushed = o.ForcePushJoinLeave.or(false)
	w.unpositioned = !o.ForceRecovery.or(true) && !o.ForcePositioning.or(false)
}

// announced reports whether the channel's subscribers are told when m joins and leaves.
func (m *member) announced() bool {
	if m.grant == nil {
		return m.ch.rules.JoinLeave
	}
	return m.grant.announced.or(m.ch.rules.JoinLeave)
}

// absent reports whether m is left out of presence.
func (m *member) absent() bool { return m.s.watcher || m.grant != nil && m.grant.absent }
