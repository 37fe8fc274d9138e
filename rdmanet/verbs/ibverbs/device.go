//go:build verbs

package ibverbs

/*
#cgo CFLAGS: -std=gnu11 -O2
#cgo LDFLAGS: -libverbs
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

// ErrNoDevice: the requested device does not exist.
var ErrNoDevice = errors.New("no RDMA device")

// GIDType is the way in which packets with such an address are carried.
type GIDType int

// The types, as the library numbers them.
const (
	GIDInfiniBand GIDType = C.IBV_GID_TYPE_IB
	GIDRoCEv1     GIDType = C.IBV_GID_TYPE_ROCE_V1
	GIDRoCEv2     GIDType = C.IBV_GID_TYPE_ROCE_V2
)

// String returns the type's name.
func (t GIDType) String() string {
	switch t {
	case GIDInfiniBand:
		return "InfiniBand"
	case GIDRoCEv1:
		return "RoCE v1"
	case GIDRoCEv2:
		return "RoCE v2"
	default:
		return fmt.Sprintf("GID type %d", int(t))
	}
}

// GID is one of a port's addresses.
type GID struct {
	Index   int
	Address netip.Addr
	Type    GIDType
}

// Port is a port of a device.
type Port struct {
	Number   int
	Active   bool
	Ethernet bool
	LID      uint32
	MTU      uint32 // as the library numbers them: 5 is 4,096 bytes
	GIDs     []GID
}

// Device is an RDMA device and its ports.
type Device struct {
	Name  string
	Ports []Port
}

// gidsMax bounds how many entries of a port's table are read. The tables are long and mostly empty.
const gidsMax = 256

// Devices returns the machine's devices.
func Devices() ([]Device, error) {
	var count C.int
	list, err := C.ibv_get_device_list(&count)
	if list == nil {
		return nil, fmt.Errorf("list of RDMA devices: %w", err)
	}
	defer C.ibv_free_device_list(list)
	var devices []Device
	for _, raw := range unsafe.Slice(list, int(count)) {
		context, err := open(raw)
		if err != nil {
			return nil, err
		}
		device := Device{Name: context.name}
		for number := 1; ; number++ {
			port, err := context.Port(number)
			if err != nil {
				break // there are no more ports
			}
			device.Ports = append(device.Ports, port)
		}
		devices = append(devices, device)
		if err := context.Close(); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// Context is an open device.
type Context struct {
	name string
	c    *C.struct_ibv_context
}

// Open opens the device with that name. It returns ErrNoDevice if there is none.
func Open(name string) (*Context, error) {
	var count C.int
	list, err := C.ibv_get_device_list(&count)
	if list == nil {
		return nil, fmt.Errorf("list of RDMA devices: %w", err)
	}
	defer C.ibv_free_device_list(list)
	for _, raw := range unsafe.Slice(list, int(count)) {
		if C.GoString(C.ibv_get_device_name(raw)) == name {
			return open(raw)
		}
	}
	return nil, fmt.Errorf("%w named %q", ErrNoDevice, name)
}

func open(raw *C.struct_ibv_device) (*Context, error) {
	name := C.GoString(C.ibv_get_device_name(raw))
	c, err := C.ibv_open_device(raw)
	if c == nil {
		return nil, fmt.Errorf("open RDMA device %s: %w", name, err)
	}
	return &Context{name: name, c: c}, nil
}

// Name returns the device's name.
func (c *Context) Name() string { return c.name }

// Close closes the device.
func (c *Context) Close() error { return failure("close the device", C.ibv_close_device(c.c)) }

// Port returns a port, numbered from 1, and its addresses.
func (c *Context) Port(number int) (Port, error) {
	var active, lid, mtu, ethernet C.int
	if err := failure("query the port", C.shim_port(c.c, C.int(number), &active, &lid, &mtu,
		&ethernet)); err != nil {
		return Port{}, err
	}
	port := Port{Number: number, Active: active != 0, Ethernet: ethernet != 0, LID: uint32(lid),
		MTU: uint32(mtu)}
	for index := range gidsMax {
		var raw [16]byte
		var kind C.int
		var device C.uint
		if C.shim_gid(c.c, C.int(number), C.int(index), (*C.uint8_t)(&raw[0]), &kind,
			&device) != 0 || raw == [16]byte{} {
			continue
		}
		port.GIDs = append(port.GIDs, GID{Index: index, Address: netip.AddrFrom16(raw),
			Type: GIDType(kind)})
	}
	return port, nil
}

// Limits are the limits of a device that matter to the provider.
type Limits struct {
	CompletionsMax int // entries of one completion queue
	RequestsMax    int // entries of one work queue
	ReadsMax       int // reads outstanding on a queue pair
	WindowsMax     int // memory windows of type 2; 0 if there are none
}

// Limits returns the device's limits.
func (c *Context) Limits() (Limits, error) {
	var attributes C.struct_ibv_device_attr
	if err := failure("query the device", C.ibv_query_device(c.c, &attributes)); err != nil {
		return Limits{}, err
	}
	limits := Limits{CompletionsMax: int(attributes.max_cqe),
		RequestsMax: int(attributes.max_qp_wr),
		ReadsMax:    int(min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom))}
	const windows = C.IBV_DEVICE_MEM_WINDOW_TYPE_2A | C.IBV_DEVICE_MEM_WINDOW_TYPE_2B
	if attributes.device_cap_flags&windows != 0 {
		limits.WindowsMax = int(attributes.max_mw)
	}
	return limits, nil
}

// Emulated reports whether the device is implemented in software, such as Soft-RoCE. The kernel
// lists such devices as virtual.
func (c *Context) Emulated() bool {
	place, err := filepath.EvalSymlinks("/sys/class/infiniband/" + c.name)
	return err == nil && strings.HasPrefix(place, "/sys/devices/virtual/")
}

// failure turns the library's return values, an errno or -1 with errno set, into an error.
func failure(what string, code C.int) error {
	if code == 0 {
		return nil
	}
	if code < 0 {
		code = -code
	}
	return fmt.Errorf("%s: %w", what, syscall.Errno(code))
}

// Protection domains and registered memory.

// Domain is a protection domain. Queue pairs reach only memory registered in their own domain.
type Domain struct{ c *C.struct_ibv_pd }

// NewDomain makes a protection domain.
func (c *Context) NewDomain() (*Domain, error) {
	d, err := C.ibv_alloc_pd(c.c)
	if d == nil {
		return nil, fmt.Errorf("protection domain: %w", err)
	}
	return &Domain{d}, nil
}

// Close frees the domain, which must be empty.
func (d *Domain) Close() error { return failure("free a protection domain", C.ibv_dealloc_pd(d.c)) }

// Access is the access that queue pairs have and memory allows.
type Access int

// The kinds of access.
const (
	AccessLocalWrite  Access = C.IBV_ACCESS_LOCAL_WRITE
	AccessRemoteWrite Access = C.IBV_ACCESS_REMOTE_WRITE
	AccessRemoteRead  Access = C.IBV_ACCESS_REMOTE_READ
	AccessWindows     Access = C.IBV_ACCESS_MW_BIND // memory windows may be bound to it
)

// Memory is a registered piece of memory.
type Memory struct{ c *C.struct_ibv_mr }

// Register registers memory that neither moves nor is freed until Close. It must not be in Go's
// heap.
func (d *Domain) Register(memory []byte, access Access) (*Memory, error) {
	m, err := C.ibv_reg_mr(d.c, unsafe.Pointer(unsafe.SliceData(memory)), C.size_t(len(memory)),
		C.int(access))
	if m == nil {
		if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN) ||
			errors.Is(err, syscall.EPERM) {
			return nil, fmt.Errorf("register %d bytes (is the limit of locked memory, ulimit "+
				"-l, large enough?): %w", len(memory), err)
		}
		return nil, fmt.Errorf("register %d bytes: %w", len(memory), err)
	}
	return &Memory{m}, nil
}

// LocalKey returns the memory's key for requests of queue pairs of its domain.
func (m *Memory) LocalKey() uint32 { return uint32(m.c.lkey) }

// RemoteKey returns the memory's key for requests of the other side.
func (m *Memory) RemoteKey() uint32 { return uint32(m.c.rkey) }

// Close removes the registration.
func (m *Memory) Close() error { return failure("deregister memory", C.ibv_dereg_mr(m.c)) }

// Channel is the channel on which completion queues report events.
type Channel struct {
	c    *C.struct_ibv_comp_channel
	file *os.File
}

// NewChannel makes a completion channel. Waiting on it holds no thread.
func (c *Context) NewChannel() (*Channel, error) {
	channel, err := C.ibv_create_comp_channel(c.c)
	if channel == nil {
		return nil, fmt.Errorf("completion channel: %w", err)
	}
	if err := failure("completion channel", C.shim_nonblocking(channel.fd)); err != nil {
		C.ibv_destroy_comp_channel(channel)
		return nil, err
	}
	// The file has its own descriptor, so that each can be closed independently.
	fd, err := syscall.Dup(int(channel.fd))
	if err != nil {
		C.ibv_destroy_comp_channel(channel)
		return nil, fmt.Errorf("completion channel: %w", err)
	}
	syscall.CloseOnExec(fd)
	return &Channel{c: channel, file: os.NewFile(uintptr(fd), "completion channel")}, nil
}

// File returns a file that is readable when there is an event, for waiting with a deadline.
func (c *Channel) File() *os.File { return c.file }

// Event takes one event and reports whether there was one.
func (c *Channel) Event() bool { return C.shim_event(c.c) == 0 }

// Close closes the channel. No completion queue may use it any more.
func (c *Channel) Close() error {
	return errors.Join(c.file.Close(), failure("destroy the completion channel",
		C.ibv_destroy_comp_channel(c.c)))
}

// String describes the device as ibv_devinfo would, on one line.
func (d Device) String() string {
	var b strings.Builder
	b.WriteString(d.Name)
	for _, port := range d.Ports {
		state := "down"
		if port.Active {
			state = "active"
		}
		fmt.Fprintf(&b, " port %d %s", port.Number, state)
		for _, gid := range port.GIDs {
			fmt.Fprintf(&b, ", gid %d %s (%s)", gid.Index, gid.Address, gid.Type)
		}
	}
	return b.String()
}
