package snapshot

import (
	"fmt"
	"maps"
	"slices"

	"github.com/myriad-go/myriad/server/push/bus"
)

// AppendPublication appends p without its Position and Version.
func AppendPublication(dst []byte, p *bus.Publication) []byte {
	dst = AppendNumber(dst, uint64(p.Kind))
	dst = AppendText(AppendText(AppendText(dst, p.ID), p.Client), p.User)
	dst = AppendNumber(dst, uint64(len(p.Tags)))
	for _, name := range slices.Sorted(maps.Keys(p.Tags)) {
		dst = AppendText(AppendText(dst, name), p.Tags[name])
	}
	return AppendText(dst, p.Data)
}

// Publication returns what AppendPublication has appended. It shares nothing with the record.
func (f *Fields) Publication() (p bus.Publication) {
	p.Kind = bus.Kind(f.NumberUpTo(uint64(bus.Binary), "the kind of a publication"))
	p.ID, p.Client, p.User = f.Text(), f.Text(), f.Text()
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		if p.Tags == nil {
			p.Tags = make(map[string]string)
		}
		name := f.Text()
		if _, twice := p.Tags[name]; twice {
			f.Fail(fmt.Sprintf("a publication has the tag %q twice", name))
		}
		p.Tags[name] = f.Text()
	}
	p.Data = f.Clone()
	return p
}
