//go:build verbs

package ibverbs

/*
#include <stdlib.h>
#include "shim.h"
#cgo noescape shim_post_send
#cgo nocallback shim_post_send
#cgo noescape shim_poll
#cgo nocallback shim_poll
#cgo noescape shim_post_receive
#cgo nocallback shim_post_receive
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Completions is a completion queue.
type Completions struct{ c *C.struct_ibv_cq }

// NewCompletions makes a completion queue of that many entries, which reports events on channel.
func (c *Context) NewCompletions(entries int, channel *Channel) (*Completions, error) {
	queue, err := C.ibv_create_cq(c.c, C.int(entries), nil, channel.c, 0)
	if queue == nil {
		return nil, fmt.Errorf("completion queue of %d entries: %w", entries, err)
	}
	return &Completions{queue}, nil
}

// Arm asks for an event at the next completion.
func (q *Completions) Arm() error { return failure("arm a completion queue", armed(q.c)) }

func armed(queue *C.struct_ibv_cq) C.int { return C.ibv_req_notify_cq(queue, 0) }

// Close destroys the queue. No queue pair may use it any more.
func (q *Completions) Close() error {
	return failure("destroy a completion queue", C.ibv_destroy_cq(q.c))
}

// Status is the result of a request.
type Status uint32

// The statuses that the provider distinguishes.
const (
	StatusSuccess         Status = C.IBV_WC_SUCCESS
	StatusFlushed         Status = C.IBV_WC_WR_FLUSH_ERR
	StatusRemoteAccess    Status = C.IBV_WC_REM_ACCESS_ERR
	StatusRemoteInvalid   Status = C.IBV_WC_REM_INV_REQ_ERR
	StatusRemoteFailed    Status = C.IBV_WC_REM_OP_ERR
	StatusRetriesSpent    Status = C.IBV_WC_RETRY_EXC_ERR
	StatusNotReadyRetries Status = C.IBV_WC_RNR_RETRY_EXC_ERR
)

// String returns the library's text.
func (s Status) String() string { return C.GoString(C.ibv_wc_status_str(uint32(s))) }

// Completion is the end of a request.
type Completion struct {
	ID        uint64
	Status    Status
	Opcode    uint32
	Vendor    uint32
	Immediate uint32
}

// OpcodeReceivedImmediate is the opcode of a receive consumed by a write with immediate data.
const OpcodeReceivedImmediate = C.IBV_WC_RECV_RDMA_WITH_IMM

// PollMax is the largest number of completions that one Poll returns.
const PollMax = 64

// Poll takes completions, up to len(into) and PollMax, without waiting.
func (q *Completions) Poll(into []Completion) (int, error) {
	n := C.shim_poll(q.c, (*C.struct_shim_completion)(unsafe.Pointer(unsafe.SliceData(into))),
		C.int(len(into)))
	if n < 0 {
		return 0, fmt.Errorf("poll a completion queue: %d", int(n))
	}
	return int(n), nil
}

// Address is the address of a queue pair.
type Address struct {
	Number   uint32 // the number of the queue pair
	Sequence uint32 // of its first packet, 24 bits
	LID      uint32
	MTU      uint32
	GID      [16]byte
}

// Patience is how long a queue pair retries, in the library's units: a timeout of 4.096 us <<
// Timeout for each of Retries + 1 attempts.
type Patience struct {
	Timeout         uint32
	Retries         uint32
	NotReadyRetries uint32 // 7 is unlimited
	NotReadyTimer   uint32
	Reads           uint32 // outstanding
}

// Pair is an RC queue pair.
type Pair struct {
	c *C.struct_ibv_qp
	// Inline is how many bytes of a write may be in the request itself.
	Inline int
}

// NewPair makes a queue pair in the domain. It supports inline data of the wanted size, or less if
// the device does not allow that.
func (d *Domain) NewPair(completions *Completions, sendDepth, receiveDepth, inline int) (*Pair,
	error) {
	for {
		bytes := C.int(inline)
		pair, err := C.shim_create_pair(d.c, completions.c, completions.c, C.int(sendDepth),
			C.int(receiveDepth), &bytes)
		if pair != nil {
			return &Pair{c: pair, Inline: int(bytes)}, nil
		}
		if inline == 0 {
			return nil, fmt.Errorf("queue pair: %w", err)
		}
		inline /= 2
	}
}

// Number returns the number of the queue pair.
func (p *Pair) Number() uint32 { return uint32(p.c.qp_num) }

// Init makes a new pair ready for receives. access is the access of the other side.
func (p *Pair) Init(port int, access Access) error {
	return failure("queue pair to INIT", C.shim_init(p.c, C.int(port), C.int(access)))
}

// Connect makes the pair ready to receive from and send to the remote pair. sequence is the number
// of its own first packet.
func (p *Pair) Connect(port Port, gidIndex int, remote Address, sequence uint32,
	patience Patience) error {
	ethernet := C.int(0)
	if port.Ethernet {
		ethernet = 1
	}
	address, tries := remote, patience
	err := failure("queue pair to RTR", C.shim_receive(p.c, C.int(port.Number), C.int(gidIndex),
		ethernet,
		(*C.struct_shim_address)(unsafe.Pointer(&address)),
		(*C.struct_shim_patience)(unsafe.Pointer(&tries))))
	if err != nil {
		return err
	}
	return failure("queue pair to RTS", C.shim_send(p.c, C.uint32_t(sequence),
		(*C.struct_shim_patience)(unsafe.Pointer(&tries))))
}

// SetAccess changes the access of the other side from now on.
func (p *Pair) SetAccess(access Access) error {
	return failure("queue pair's access", C.shim_access(p.c, C.int(access)))
}

// Fail puts the pair in the error state: requests are flushed, and the other side gets no more
// answers.
func (p *Pair) Fail() error { return failure("queue pair to ERR", C.shim_fail(p.c)) }

// Close destroys the pair.
func (p *Pair) Close() error { return failure("destroy a queue pair", C.ibv_destroy_qp(p.c)) }

// Opcode is the operation of a request.
type Opcode uint32

// The opcodes that the provider uses.
const (
	OpcodeWrite          Opcode = C.IBV_WR_RDMA_WRITE
	OpcodeWriteImmediate Opcode = C.IBV_WR_RDMA_WRITE_WITH_IMM
	OpcodeRead           Opcode = C.IBV_WR_RDMA_READ
	opcodeBind           Opcode = C.IBV_WR_BIND_MW
	opcodeInvalidate     Opcode = C.IBV_WR_LOCAL_INV
)

// Flags of a request.
type Flags uint32

// FlagSignalled asks for a completion. FlagInline copies the bytes into the request.
const (
	FlagSignalled Flags = C.IBV_SEND_SIGNALED
	FlagInline    Flags = C.IBV_SEND_INLINE
)

// Request is a work request. Local is an address outside Go's heap. The memory there must stay
// until the completion, or for inline writes until Post returns.
type Request struct {
	ID                  uint64
	Local, Remote       uint64
	Length              uint32
	LocalKey, RemoteKey uint32
	Immediate           uint32
	Opcode              Opcode
	Flags               Flags
}

// Post passes the requests to the queue pair, in one call into C. It returns how many the pair
// took, which is all unless there is an error.
func (p *Pair) Post(requests []Request) (int, error) {
	if len(requests) == 0 {
		return 0, nil
	}
	var posted C.int
	code := C.shim_post_send(p.c, (*C.struct_shim_request)(
		unsafe.Pointer(unsafe.SliceData(requests))), C.int(len(requests)), &posted)
	return int(posted), failure("post", code)
}

// PostReceives posts that many empty receives for writes with immediate data. Each completes with
// that id.
func (p *Pair) PostReceives(id uint64, count int) error {
	return failure("post receives", C.shim_post_receive(p.c, C.uint64_t(id), C.int(count)))
}
