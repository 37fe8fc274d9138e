package mempool

import "github.com/ledgerd/ledgerd/ledger"

// Beside is the input from other shards: entries of the parent's stream and verdicts that the chain
// waits for. It calls Pool.Wake when there is something new.
type Beside interface {
	// Propose passes to use what goes into the next batch, as much as fits into room bytes, as
	// ledger.CarriedSize and ledger.VerdictSize count them. It calls use at most once, and not at
	// all if there is nothing. Use copies what it keeps before it returns.
	//
	// The entries ascend and follow those in the chain. The verdicts are made as by
	// ledger.VerdictOf. If the batch's decoder refused any of them, the bundles in the same batch
	// would lose their round.
	//
	// Propose must not block. The pool holds no lock during the call, so Propose may hold a lock
	// under which Wake is called.
	Propose(room int, use func(carried []ledger.Carried, verdicts []ledger.Verdict))
}

// turn says which side goes first in a batch that has not room for both.
type turn uint8

const (
	turnBeside turn = iota
	turnBundles
)

// Wake reports that Beside has something new: Ready gets a value.
func (p *Pool) Wake() { p.signal() }

// nextBeside is Next in a book of several shards. If clients' bundles and Beside both want more
// than there is, each gets half of the room. The largest item of either side needs more than half
// of a small room. So they go first in turn, and the side whose turn it is has room for its largest
// item.
func (p *Pool) nextBeside(stamp stamp, room int) (payload []byte) {
	reserved := p.reserve(room)
	made := false
	use := func(carried []ledger.Carried, verdicts []ledger.Verdict) {
		if !made {
			made, payload = true, p.payloadBeside(stamp, room, reserved, carried, verdicts)
		}
	}
	p.config.Beside.Propose(max(0, room-reserved), use)
	use(nil, nil)
	return payload
}

// reserve returns the room that clients' bundles get, whatever Beside proposes.
func (p *Pool) reserve(room int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	share := room - max(room/2, ledger.CarriedSize(ledger.MaxBundleBytes))
	if p.turn == turnBundles {
		share = min(room, max(room/2, ledger.BatchSize(ledger.MaxBundleBytes)))
	}
	reserved := 0
	for _, it := range p.queue[p.next:] {
		size := ledger.BatchSize(len(it.encoded))
		if reserved+size > share && !it.gone {
			break
		}
		if !it.gone {
			reserved += size
		}
	}
	return reserved
}

func (p *Pool) payloadBeside(stamp stamp, room, reserved int, carried []ledger.Carried,
	verdicts []ledger.Verdict) []byte {
	left := room - reserved
	fitting := 0
	for fitting < min(len(carried), ledger.MaxBatchCarried) &&
		len(carried[fitting].Bundle) <= ledger.MaxBundleBytes &&
		ledger.CarriedSize(len(carried[fitting].Bundle)) <= left {
		left -= ledger.CarriedSize(len(carried[fitting].Bundle))
		fitting++
	}
	carried = carried[:fitting]
	verdicts = verdicts[:min(len(verdicts), ledger.MaxBatchVerdicts,
		max(0, left)/ledger.VerdictSize)]
	left -= ledger.VerdictSize * len(verdicts)

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.turn == turnBeside && len(carried)+len(verdicts) > 0:
		p.turn = turnBundles
	case p.turn == turnBundles && reserved > 0:
		p.turn = turnBeside
	}
	return p.payload(stamp, reserved+left, carried, verdicts)
}
