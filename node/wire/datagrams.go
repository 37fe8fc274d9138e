package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// DatagramLane is the lane that carries datagrams.
const DatagramLane = "control"

// DatagramMax bounds a datagram's payload, in bytes.
const DatagramMax = 1 << 20

// Kind is the subject of a message. It selects the handler.
type Kind uint8

// The kinds in use. The numbers never change their meaning.
const (
	// KindHeartbeat: the sender is alive (package detector).
	KindHeartbeat Kind = 1
	// KindAccusation: the sender lost its lane to a server that the receiver watches, or to the
	// receiver (package detector).
	KindAccusation Kind = 2
	// KindStatus: the sender's state and progress (package node).
	KindStatus Kind = 3
	// KindGeneration: the agreement on the next generation (package allconcur/generation).
	KindGeneration Kind = 4
	// KindEnter: the sender, outside of the group, has the chain's blocks and asks to take part
	// (package node).
	KindEnter Kind = 5
	// KindShard: the state of the sender, a member of another shard, and the progress of its chain
	// (package shards).
	KindShard Kind = 6
	// KindVerdicts: the verdicts of the sender's shard on transactions that also concern the
	// receiver's shard (package shards).
	KindVerdicts Kind = 7
	// KindVerdictQuery: transactions for which the sender's shard waits for the receiver's verdict
	// (package shards).
	KindVerdictQuery Kind = 8
	// KindStream: asks for, offers of, and feedback on rings of the stream from a parent shard to a
	// child (package streams).
	KindStream Kind = 9
	// KindStored: the progress of the sender's disk in a run (package node).
	KindStored Kind = 10
	// KindStatement: what the sender signed of a block that it stored (package certification).
	KindStatement Kind = 11
	// KindRecorded: complete rounds of a run that are on the sender's disk (package node).
	KindRecorded Kind = 12
	// KindFull: the shards for whose verdicts so many transactions of the sender's shard wait that
	// further ones should not be admitted (package shards).
	KindFull Kind = 13
	// KindWaiting: what entries of the chain of the sender, a member of another shard, wait for
	// (package shards). Nodes of earlier versions ignore it.
	KindWaiting Kind = 20
)

// Handler handles one message. Calls for messages of one peer come one at a time, in order; those
// for different peers may run concurrently. The payload is immutable and may be kept. A handler
// must return quickly, as it holds up that peer's later messages.
type Handler func(from rdmanet.Peer, payload []byte)

// Errors of Datagrams; match them with errors.Is.
var (
	// ErrBusy means that the peer's window has no room: the message was not sent.
	ErrBusy = errors.New("control: no room on the lane")
	// ErrTooLarge means that a payload exceeds DatagramMax.
	ErrTooLarge = errors.New("control: payload too large")
	// ErrRegistered means that a kind has a handler already.
	ErrRegistered = errors.New("control: kind already registered")
)

// Datagrams is the shared lane "control". All methods are safe for concurrent use.
type Datagrams struct {
	host     rdmanet.Host
	logger   *slog.Logger
	handlers [256]atomic.Pointer[Handler]

	complaints complaints
}

// NewDatagrams registers for the host's lane "control". The logger may be nil. Errors are the
// host's.
func NewDatagrams(host rdmanet.Host, logger *slog.Logger) (*Datagrams, error) {
	if logger == nil {
		logger = slog.Default()
	}
	d := &Datagrams{host: host, logger: logger}
	if err := host.Receive(DatagramLane, d.receive); err != nil {
		return nil, fmt.Errorf("control: register for lane %q: %w", DatagramLane, err)
	}
	return d, nil
}

// Register sets the handler of a kind for good. It returns ErrRegistered if the kind has one.
func (d *Datagrams) Register(kind Kind, handler Handler) error {
	if !d.handlers[kind].CompareAndSwap(nil, &handler) {
		return fmt.Errorf("%w: %d", ErrRegistered, kind)
	}
	return nil
}

// Send sends a message without waiting for room; it copies the payload. It returns ErrBusy,
// ErrTooLarge, or an error of the fabric.
func (d *Datagrams) Send(peer rdmanet.PeerID, kind Kind, payload []byte) error {
	if len(payload) > DatagramMax {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrTooLarge, len(payload),
			DatagramMax)
	}
	message := make([]byte, 1+len(payload))
	message[0] = byte(kind)
	copy(message[1:], payload)
	sent, err := d.trySend(peer, message)
	if errors.Is(err, rdmanet.ErrReset) || errors.Is(err, rdmanet.ErrUnreachable) {
		// The lane broke since its last use. A fresh lane leads to the peer's current process.
		sent, err = d.trySend(peer, message)
	}
	switch {
	case err != nil:
		return fmt.Errorf("control: to %s: %w", peer, err)
	case !sent:
		return fmt.Errorf("%w to %s", ErrBusy, peer)
	}
	return nil
}

func (d *Datagrams) trySend(peer rdmanet.PeerID, message []byte) (bool, error) {
	lane, err := d.host.Lane(peer, DatagramLane)
	if err != nil {
		return false, err
	}
	return lane.TrySend(message)
}

// receive passes each message to its kind's handler.
func (d *Datagrams) receive(from rdmanet.Peer, messages [][]byte) {
	for _, message := range messages {
		if len(message) == 0 || len(message) > 1+DatagramMax {
			if d.complaints.due(from.ID) {
				d.logger.Error("malformed control message", "peer", from, "bytes", len(message))
			}
			continue
		}
		handler := d.handlers[message[0]].Load()
		if handler == nil {
			d.logger.Debug("control message of a kind without a handler", "peer", from, "kind",
				message[0])
			continue
		}
		(*handler)(from, message[1:])
	}
}
