package driver

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// inbox is the queue from the lanes' many goroutines to the one that takes turns. A [turn.Gate]
// decides which frames are taken. The inbox is the lock around it, and makes lanes wait for room.
// Both sides take the lock once per batch of frames.
type inbox struct {
	runOf   func([]byte) (uint64, error)
	arrived func(order.ServerID, []byte) // never nil
	logger  *slog.Logger

	// wake holds a value when there is something to take.
	wake chan struct{}

	mu      sync.Mutex
	room    sync.Cond // a waiting lane may continue, or was silenced
	gate    *turn.Gate
	senders []*turn.Sender                    // by place in Config.Peers
	loans   []rdmanet.Loan                    // held, of frames that wait for the next turn
	servers map[rdmanet.PeerID]order.ServerID // replaced as a whole, never modified
}

func newInbox(config Config) (*inbox, error) {
	in := &inbox{
		gate: turn.NewGate(turn.GateConfig{
			Frames: config.InboxFrames, Bytes: config.InboxBytes, Held: config.HeldFrames,
		}),
		runOf:   config.FrameRun,
		arrived: config.Arrived,
		logger:  config.Logger,
		wake:    make(chan struct{}, 1),
	}
	if in.arrived == nil {
		in.arrived = func(order.ServerID, []byte) {}
	}
	in.room.L = &in.mu
	return in, in.setPeers(config.Peers)
}

// setPeers replaces the peers. A peer that keeps its place stays the same sender. A departed peer
// stays a sender until the end of the running group, if it is in that group.
func (in *inbox) setPeers(peers []rdmanet.PeerID) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	servers := make(map[rdmanet.PeerID]order.ServerID, len(peers))
	senders := make([]*turn.Sender, len(peers))
	for i, peer := range peers {
		if _, twice := servers[peer]; twice {
			return fmt.Errorf("%w: peer %s is listed twice", ErrConfig, peer)
		}
		if peer != "" {
			servers[peer] = order.ServerID(i)
		}
		senders[i] = turn.NewSender()
	}
	for peer, was := range in.servers {
		old := in.senders[was]
		switch is, listed := servers[peer]; {
		case listed && is == was:
			senders[is] = old
		case !listed && old.Member() && int(was) < len(peers) && peers[was] == "":
			servers[peer], senders[was] = was, old
		default:
			in.gate.Dismiss(old) // a frame of it may wait for room, and must go nowhere
		}
	}
	in.servers, in.senders = servers, senders
	in.gate.SetSenders(senders)
	in.room.Broadcast()
	return nil
}

// receive is the lanes' receive function. It blocks while there is no room.
func (in *inbox) receive(from rdmanet.Peer, frames [][]byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	server, known := in.servers[from.ID]
	if !known {
		return
	}
	sender := in.senders[server]
	for _, frame := range frames {
		run, err := in.runOf(frame)
		if err != nil {
			in.malformed(server, sender, err)
			continue
		}
		for in.gate.Full(sender, run) {
			in.room.Wait()
		}
		if in.admit(from, server, sender, run, frame, nil) && in.gate.Waiting() == 1 {
			in.signal()
		}
	}
}

// tryReceive is receive without waiting for room. It returns how many frames it took. The caller
// then sees to a turn.
func (in *inbox) tryReceive(from rdmanet.Peer, frames [][]byte) int {
	return in.tryReceiveLent(from, frames, nil)
}

// tryReceiveLent is tryReceive for lent frames, if there is a loan.
func (in *inbox) tryReceiveLent(from rdmanet.Peer, frames [][]byte, loan rdmanet.Loan) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	server, known := in.servers[from.ID]
	if !known {
		return len(frames)
	}
	sender := in.senders[server]
	for i, frame := range frames {
		run, err := in.runOf(frame)
		switch {
		case err != nil:
			// Nothing more is taken from this sender, and the lanes of others wait.
			in.malformed(server, sender, err)
			return len(frames)
		case in.gate.Full(sender, run):
			return i
		default:
			in.admit(from, server, sender, run, frame, loan)
		}
	}
	return len(frames)
}

// admit passes a frame for which there is room to the gate, and holds its loan if it is lent. It
// reports whether the frame waits for the next turn.
func (in *inbox) admit(from rdmanet.Peer, server order.ServerID, sender *turn.Sender, run uint64,
	frame []byte, loan rdmanet.Loan) bool {
	switch in.gate.Admit(sender, turn.Incarnation(from.Incarnation), run, frame) {
	case turn.Taken:
		if loan != nil {
			in.hold(loan)
		}
		in.arrived(server, frame)
		return true
	case turn.Held:
		if loan != nil {
			loan.Hold() // for ever: its run may begin at any time
		}
		in.arrived(server, frame)
	case turn.Refused:
		in.signal()
		in.room.Broadcast()
	}
	return false
}

// hold holds the loan of a frame that waits for the next turn.
func (in *inbox) hold(loan rdmanet.Loan) {
	switch {
	case slices.Contains(in.loans, loan):
	case len(in.loans) == loansMax:
		loan.Hold() // it is forgotten
	default:
		loan.Hold()
		in.loans = append(in.loans, loan)
	}
}

// malformed handles bytes that are not a frame of any run.
func (in *inbox) malformed(server order.ServerID, sender *turn.Sender, err error) {
	if in.gate.Malformed(sender, err) {
		in.logger.Error("malformed frame: nothing more is taken from this member in this run",
			"member", server, "error", err)
		in.signal()
		in.room.Broadcast()
	}
}

// suspect queues a suspicion.
func (in *inbox) suspect(run uint64, server order.ServerID, cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate.Suspect(run, server, cause)
	in.signalOpinions()
}

// trust withdraws a suspicion.
func (in *inbox) trust(run uint64, server order.ServerID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate.Trust(run, server)
	in.signalOpinions()
}

// probe queues a probe.
func (in *inbox) probe(run uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate.Probe(run)
	in.signalOpinions()
}

// silence stops taking frames from a server in this run.
func (in *inbox) silence(server order.ServerID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate.Silence(server)
	in.room.Broadcast()
}

func (in *inbox) signalOpinions() {
	if in.gate.Opinions() > 0 {
		in.signal()
	}
}

func (in *inbox) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// take returns everything that waits, in exchange for an empty slice to fill. It passes the frames'
// loans to borrowed.
func (in *inbox) take(empty []turn.Arrival, borrowed *loans) ([]turn.Arrival, []turn.Opinion) {
	in.mu.Lock()
	defer in.mu.Unlock()
	frames, opinions := in.gate.Take(empty)
	if len(frames) > 0 {
		in.room.Broadcast()
	}
	borrowed.took(in.loans)
	in.loans = in.loans[:0]
	return frames, opinions
}

// activate begins a run with the frames that were held for it.
func (in *inbox) activate(group Group) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.loans = nil // what is left of the last run
	in.gate.Activate(group.Run, group.Members)
	if in.gate.Waiting() > 0 {
		in.signal()
	}
	in.signalOpinions()
	in.room.Broadcast()
}

// end drops the waiting and all later frames of the run.
func (in *inbox) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate.End()
	in.room.Broadcast()
}

// close makes every receive function return, now and later.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate.Close()
	in.room.Broadcast()
}

// causeOf adds the fabric's name of a cause, if it has one.
func causeOf(cause error) error {
	if errors.Is(cause, turn.ErrRestarted) {
		return fmt.Errorf("%w: %w", rdmanet.ErrReset, cause)
	}
	return cause
}
