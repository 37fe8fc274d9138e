// Package protectedtest helps to test machines of package protected: it has a host whose
// completions come late.
package protectedtest

import "github.com/ledgerd/ledgerd/rdmanet"

// LateHost is a host at whose queue the completions of one peer's operations come late: a fabric
// may take its time with operations of an attachment that was closed. It has one queue.
type LateHost struct {
	rdmanet.RegionHost
	// Late is the peer.
	Late rdmanet.PeerID
	// Held holds the completions back while it is true.
	Held bool

	under map[uint64]bool // tags of long writes to the peer
	late  []rdmanet.Completion
}

// Queue makes the queue.
func (h *LateHost) Queue(depth int) (rdmanet.Queue, error) {
	queue, err := h.RegionHost.Queue(depth)
	h.under = map[uint64]bool{}
	return lateQueue{queue, h}, err
}

// Lends reports whether a write to the peer is under way whose bytes the queue did not copy.
func (h *LateHost) Lends() bool { return len(h.under) > 0 }

type lateQueue struct {
	rdmanet.Queue
	host *LateHost
}

func (q lateQueue) Post(operations ...rdmanet.Operation) error {
	for _, o := range operations {
		if o.Kind == rdmanet.OperationWrite && o.To.Peer().ID == q.host.Late &&
			len(o.Bytes) > rdmanet.InlineMax {
			q.host.under[o.Tag] = true
		}
	}
	return q.Queue.Post(operations...)
}

func (q lateQueue) Poll(into []rdmanet.Completion) int {
	h := q.host
	if !h.Held && len(h.late) > 0 {
		count := copy(into, h.late)
		h.late = h.late[count:]
		for _, completion := range into[:count] {
			delete(h.under, completion.Tag)
		}
		return count
	}
	count := 0
	for _, completion := range into[:q.Queue.Poll(into)] {
		if h.Held && completion.Peer == h.Late {
			h.late = append(h.late, completion)
			continue
		}
		delete(h.under, completion.Tag)
		into[count] = completion
		count++
	}
	return count
}
