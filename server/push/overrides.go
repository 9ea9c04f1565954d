package push

// This file has subscriptions of the server follow rules that differ from those of the namespace.

// or returns the value of a rule in an Override, or that of the namespace if it has none.
func or(value *bool, rule bool) bool {
	if value == nil {
		return rule
	}
	return *value
}

// check returns an error for a rule that the namespace cannot follow for some of its subscribers.
func (o *Override) check(rules *Namespace) error {
	switch {
	case rules.Recovery:
		return nil
	case or(o.ForceRecovery, false):
		return badCall("override.force_recovery needs a namespace with the rule recovery")
	case or(o.ForcePositioning, false):
		return badCall("override.force_positioning needs a namespace with the rule recovery")
	}
	return nil
}

// apply changes the request and the grant of one subscription.
func (o *Override) apply(w *SubscribeCommand) {
	if o == nil {
		return
	}
	w.grant.absent = !or(o.Presence, true)
	w.grant.announced = o.JoinLeave
	w.pushed = or(o.ForcePushJoinLeave, false)
	w.unpositioned = !or(o.ForceRecovery, true) && !or(o.ForcePositioning, false)
}

// announced reports whether the channel's subscribers are told when m joins and leaves.
func (m *member) announced() bool {
	if m.grant == nil {
		return m.ch.rules.JoinLeave
	}
	return or(m.grant.announced, m.ch.rules.JoinLeave)
}

// absent reports whether m is left out of presence.
func (m *member) absent() bool { return m.s.watcher || m.grant != nil && m.grant.absent }
