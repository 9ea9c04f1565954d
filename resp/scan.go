package resp

// A valueScan finds the end of a value that comes in parts, without reading what it has read again.
// The zero value begins with a value.
type valueScan struct {
	pos      int // where the next line begins, or the bytes of a string
	searched int // in so many bytes from pos on a line does not end
	values   int // that aggregates have announced
	// frames are the aggregates that pos is in, the innermost last.
	frames []frame
	inText bool // at pos there are the bytes of a string
	size   int  // so many
	kind   Kind
	begun  bool
}

type frame struct {
	left int  // values still to come
	attr bool // it stands in front of a value
}

// complete reports whether p, which is all that has come of the value, has its end. An error is
// that of ParseValue.
func (s *valueScan) complete(p []byte, l *Limits) (bool, error) {
	for !s.begun || len(s.frames) > 0 || s.inText {
		if s.inText {
			if len(p)-s.pos < s.size+2 {
				return false, nil
			}
			if err := checkText(p, s.pos, s.size, s.kind); err != nil {
				return false, err
			}
			s.pos += s.size + 2
			s.inText = false
			s.ended()
			continue
		}
		h, err := nextHeader(p, s.pos, s.searched, l)
		switch {
		case err == errShort:
			s.searched = h.line
			return false, nil
		case err != nil:
			return false, err
		}
		if err := s.enter(h, l); err != nil {
			return false, err
		}
	}
	return true, nil
}

// enter goes behind the first line of a value.
func (s *valueScan) enter(h valueHeader, l *Limits) error {
	if h.kind == Push && len(s.frames) > 0 {
		return errNestedPush
	}
	s.begun = true
	s.pos += h.line
	s.searched = 0
	if h.shape == aggregate {
		s.values += int(h.number)
	}
	switch {
	case s.values > l.Args:
		return errValues
	case h.shape == stringOf:
		s.inText, s.size, s.kind = true, int(h.number), h.kind
		return nil
	case h.shape == aggregate && s.depth() >= l.Depth:
		return errDepth
	case h.shape == aggregate && (h.number > 0 || h.kind == Attribute):
		s.frames = append(s.frames, frame{left: int(h.number), attr: h.kind == Attribute})
		if h.number > 0 {
			return nil
		}
		s.leave()
		return nil
	}
	s.ended()
	return nil
}

// depth is how many aggregates pos is in, apart from attributes that have ended.
func (s *valueScan) depth() int { return len(s.frames) }

// ended counts a value that has come completely, and closes the aggregates that end with it.
func (s *valueScan) ended() {
	for len(s.frames) > 0 {
		top := &s.frames[len(s.frames)-1]
		if top.left--; top.left > 0 {
			return
		}
		if s.leave() {
			return
		}
	}
}

// leave closes the innermost aggregate. It reports whether that was an attribute, so that its value
// is still to come.
func (s *valueScan) leave() (attr bool) {
	last := len(s.frames) - 1
	attr = s.frames[last].attr
	s.frames = s.frames[:last]
	if attr && last == 0 {
		s.begun = false
	}
	return attr
}
