//go:build verbs

package ibverbs

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// Window is a memory window of type 2: a key to a piece of registered memory that works on one
// queue pair, from its binding there until its invalidation. Both are requests to that queue pair.
type Window struct{ c *C.struct_shim_window }

// NewWindow makes a window in the domain. It is not bound.
func (d *Domain) NewWindow() (*Window, error) {
	w := (*C.struct_shim_window)(C.calloc(1, C.sizeof_struct_shim_window))
	if w == nil {
		return nil, fmt.Errorf("memory window: %w", syscall.ENOMEM)
	}
	var err error
	if w.window, err = C.shim_window(d.c); w.window == nil {
		C.free(unsafe.Pointer(w))
		return nil, fmt.Errorf("memory window: %w", err)
	}
	return &Window{w}, nil
}

// Bind returns the request that binds the window, with the given access, to all of the memory,
// which must be registered with AccessWindows. The key works once the request has completed. The
// window and the memory must stay until then.
func (w *Window) Bind(memory *Memory, access Access) (request Request, key uint32) {
	w.c.memory, w.c.access = memory.c, C.int(access)
	key = uint32(C.shim_next_key(w.c.window))
	return Request{Opcode: opcodeBind, Remote: uint64(uintptr(unsafe.Pointer(w.c))),
		RemoteKey: key}, key
}

// Invalidate returns the request that invalidates a key that Bind returned.
func Invalidate(key uint32) Request { return Request{Opcode: opcodeInvalidate, RemoteKey: key} }

// Close frees the window, bound or not.
func (w *Window) Close() error {
	if err := failure("free a memory window", C.shim_free_window(w.c.window)); err != nil {
		return err
	}
	C.free(unsafe.Pointer(w.c))
	return nil
}
