package main

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push"
)

// reloadable reports whether SIGHUP changes the option while the server runs. The others need a
// restart.
func (o option) reloadable() bool {
	switch o.name {
	case "log-level", "namespace", "token-secret", "token-key", "token-issuer", "token-audience":
		return true
	}
	return strings.HasSuffix(o.name, "-rate")
}

// sameAs reports whether the option has the same value in both. That of --token-key is what the
// files hold.
func (o option) sameAs(a, b *settings) bool {
	if o.name == "token-key" && !slices.Equal(a.push.TokenKeys, b.push.TokenKeys) {
		return false
	}
	return reflect.DeepEqual(o.field(a), o.field(b))
}

// followHangups reads the configuration again on each SIGHUP, and the certificate too, until ctx
// ends.
func (r *running) followHangups(ctx context.Context, hangups <-chan os.Signal, certificates *keeper) {
	renew := make(chan os.Signal, 1)
	if certificates != nil {
		go certificates.watch(ctx, lookPeriod, renew)
	}
	current := r.configured
	for {
		select {
		case <-ctx.Done():
			return
		case signal := <-hangups:
			if certificates != nil {
				select {
				case renew <- signal:
				default: // it is about to read the files
				}
			}
			current = r.reload(current)
		}
	}
}

// reload reads the configuration again, applies what can change while the server runs, and logs
// what has changed and what needs a restart. If there is a mistake, nothing changes. It returns the
// settings in use.
func (r *running) reload(current settings) settings {
	next, err := current.again()
	apply := next.push
	var fixed error // why the namespaces stay
	if err == nil {
		apply.Namespaces = append([]push.Namespace{}, apply.Namespaces...) // not nil, which would change nothing
		fixed = r.pusher.CheckNamespaces(apply)
		if errors.Is(fixed, push.ErrNeedsRestart) {
			apply.Namespaces = current.push.Namespaces
		}
		err = r.pusher.Reload(apply)
	}
	if err != nil {
		r.log.Error("myriad: SIGHUP: the configuration has a mistake, and nothing changes", "error",
			oneLine(err))
		return current
	}
	current.level.Set(next.logLevel)
	var changed, restart []string
	for _, o := range options {
		switch {
		case o.sameAs(&current, &next):
		case o.reloadable() && (o.name != "namespace" || fixed == nil):
			changed = append(changed, o.name)
			reflect.ValueOf(o.field(&current)).Elem().Set(reflect.ValueOf(o.field(&next)).Elem())
		default:
			restart = append(restart, o.name)
		}
	}
	current.push.TokenKeys = next.push.TokenKeys
	r.log.Info("myriad: SIGHUP: read the configuration again", "changed", changed)
	if len(restart) > 0 {
		r.log.Warn("myriad: SIGHUP: some options have changed and need a restart", "options", restart, "namespaces",
			oneLine(fixed))
	}
	return current
}

// oneLine returns the text of err, or "", without line breaks.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
