package myriad

import "net"

import "github.com/myriad-go/myriad/internal/driver"

func (e *Engine) bridge(nc net.Conn) (driver.Socket, error) { return nil, ErrUnsupported }

type streamConn struct{ net.Conn }
