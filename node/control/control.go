// Package control shares the fabric's lane "control" among those who send small, urgent messages:
// heartbeats, stored heights, the agreement on generations. It is apart from the bulk lanes, so
// that a heartbeat never waits behind a megabyte of transactions.
//
// A message is one byte of kind and a payload. A kind has one handler:
//
//	c, err := control.New(host, logger)
//	err = c.Register(control.KindHeartbeat, func(from rdmanet.Peer, payload []byte) { ... })
//	err = c.Send(peer, control.KindHeartbeat, payload)
//
// What always holds: Send never blocks; messages of one sender arrive in order; messages may be
// lost when a peer's window is full, it restarts, or it has no handler yet. Whoever needs more says
// things again, as all users of this package do.
package control

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// LaneName is the lane that carries the messages.
const LaneName = "control"

// PayloadMax bounds a message's payload, in bytes.
const PayloadMax = 1 << 20

// Kind tells what a message is about, and so who handles it.
type Kind uint8

// The kinds in use; one number for one meaning, for ever.
const (
	// KindHeartbeat: the sender is alive (package detector).
	KindHeartbeat Kind = 1
	// KindAccusation: the sender lost its lane to a server that the receiver watches, or to the
	// receiver (package detector).
	KindAccusation Kind = 2
	// KindStatus: what the sender does and how far it has come (package node).
	KindStatus Kind = 3
	// KindGeneration: the agreement on the next generation (package allconcur/generation).
	KindGeneration Kind = 4
	// KindEnter: the sender, outside of the group, has the chain's blocks and wants to take part
	// (package node).
	KindEnter Kind = 5
	// KindShard: what the sender, of another shard, does and how far its chain has come (package
	// shards).
	KindShard Kind = 6
	// KindVerdicts: what the sender's shard says of transactions that concern the receiver's too
	// (package shards).
	KindVerdicts Kind = 7
	// KindVerdictQuery: transactions for which the sender's shard waits for the receiver's verdict
	// (package shards).
	KindVerdictQuery Kind = 8
	// KindStream: rings of the stream from a parent shard to a child are asked for, offered, and
	// given room (package streams).
	KindStream Kind = 9
	// KindStored: how far the sender's disk has come in a run (package node).
	KindStored Kind = 10
)

// Handler takes one message. Calls for messages of one peer come one at a time, in order; those of
// different peers may run side by side. The payload is immutable and may be kept. A handler must
// return quickly, as it holds up that peer's later messages.
type Handler func(from rdmanet.Peer, payload []byte)

// Errors of Control; match them with errors.Is.
var (
	// ErrBusy says that the peer's window has no room: the message was not sent.
	ErrBusy = errors.New("control: no room on the lane")
	// ErrTooLarge says that a payload is over PayloadMax.
	ErrTooLarge = errors.New("control: payload too large")
	// ErrRegistered says that a kind has a handler already.
	ErrRegistered = errors.New("control: kind already registered")
)

// Control is the shared lane. All methods may be called from several goroutines.
type Control struct {
	host     rdmanet.Host
	logger   *slog.Logger
	handlers [256]atomic.Pointer[Handler]
}

// New takes the host's lane "control". The logger may be nil. Errors are the host's.
func New(host rdmanet.Host, logger *slog.Logger) (*Control, error) {
	if logger == nil {
		logger = slog.Default()
	}
	c := &Control{host: host, logger: logger}
	if err := host.Receive(LaneName, c.receive); err != nil {
		return nil, fmt.Errorf("control: register for lane %q: %w", LaneName, err)
	}
	return c, nil
}

// Register gives the messages of a kind to a handler, for good. ErrRegistered.
func (c *Control) Register(kind Kind, handler Handler) error {
	if !c.handlers[kind].CompareAndSwap(nil, &handler) {
		return fmt.Errorf("%w: %d", ErrRegistered, kind)
	}
	return nil
}

// Send sends a message, without waiting for room; it copies the payload. ErrBusy, ErrTooLarge, and
// the fabric's errors.
func (c *Control) Send(peer rdmanet.PeerID, kind Kind, payload []byte) error {
	if len(payload) > PayloadMax {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrTooLarge, len(payload),
			PayloadMax)
	}
	message := make([]byte, 1+len(payload))
	message[0] = byte(kind)
	copy(message[1:], payload)
	sent, err := c.trySend(peer, message)
	if errors.Is(err, rdmanet.ErrReset) || errors.Is(err, rdmanet.ErrUnreachable) {
		// The lane broke since it was last used: a fresh one leads to whoever answers now.
		sent, err = c.trySend(peer, message)
	}
	switch {
	case err != nil:
		return fmt.Errorf("control: to %s: %w", peer, err)
	case !sent:
		return fmt.Errorf("%w to %s", ErrBusy, peer)
	}
	return nil
}

func (c *Control) trySend(peer rdmanet.PeerID, message []byte) (bool, error) {
	lane, err := c.host.Lane(peer, LaneName)
	if err != nil {
		return false, err
	}
	return lane.TrySend(message)
}

// receive gives each message to its kind's handler.
func (c *Control) receive(from rdmanet.Peer, messages [][]byte) {
	for _, message := range messages {
		if len(message) == 0 || len(message) > 1+PayloadMax {
			c.logger.Error("malformed control message", "peer", from, "bytes", len(message))
			continue
		}
		handler := c.handlers[message[0]].Load()
		if handler == nil {
			c.logger.Debug("control message of a kind that nobody handles", "peer", from, "kind",
				message[0])
			continue
		}
		(*handler)(from, message[1:])
	}
}
