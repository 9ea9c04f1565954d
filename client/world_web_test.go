package client_test

type webHost struct{}

func (w *world) serve(h *host) { panic("TODO") }
func (w *world) closeWebs()    {}
