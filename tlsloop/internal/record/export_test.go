package record

// Skip has the next record be one with a number, as if all before it had passed.
func (k *Keys) Skip(to uint64) { k.number = to }
