package api

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// unheard lets the kernel drop what addresses send to a listener, so that a flood of connections
// from them costs the node nothing. Connections that are established are not affected. It does
// nothing for a listener without a socket.
func unheard(listener net.Listener, addresses []netip.Prefix) error {
	socket, is := listener.(syscall.Conn)
	if !is {
		return nil
	}
	assembled, err := bpf.Assemble(dropping(headerOfNetwork, addresses))
	if err != nil {
		return err
	}
	filters := make([]unix.SockFilter, len(assembled))
	for i, each := range assembled {
		filters[i] = unix.SockFilter{Code: each.Op, Jt: each.Jt, Jf: each.Jf, K: each.K}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		failed = unix.SetsockoptSockFprog(int(descriptor), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]})
	}); err != nil {
		return err
	}
	return failed
}

// headerOfNetwork is the offset by which a socket's filter reads the header of IP (SKF_NET_OFF).
const headerOfNetwork = 0xfff00000

// dropping returns the filter that drops the packets of addresses, with the header of IP at an
// offset. Each is an IPv4 address, or the 64 bits of IPv6 that one subscriber has.
func dropping(header uint32, addresses []netip.Prefix) []bpf.Instruction {
	const all = 1 << 18 // bytes of a packet
	source4, source6 := header+12, header+8
	var of4, of6 []bpf.Instruction
	for _, address := range addresses {
		if ip := address.Addr(); ip.Is4() {
			bytes := ip.As4()
			of4 = append(of4,
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(bytes[:]),
					SkipFalse: 1},
				bpf.RetConstant{})
		} else {
			bytes := ip.As16()
			of6 = append(of6,
				bpf.LoadAbsolute{Off: source6, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(bytes[:4]),
					SkipFalse: 3},
				bpf.LoadAbsolute{Off: source6 + 4, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(bytes[4:8]),
					SkipFalse: 1},
				bpf.RetConstant{})
		}
	}
	of4 = append(append([]bpf.Instruction{bpf.LoadAbsolute{Off: source4, Size: 4}}, of4...),
		bpf.RetConstant{Val: all})
	filter := append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: header, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}, // the version of IP
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(of4))},
	}, of4...)
	return append(append(filter, of6...), bpf.RetConstant{Val: all})
}
