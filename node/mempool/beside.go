package mempool

import "github.com/ledgerd/ledgerd/ledger"

// Beside is what other shards have for this one: entries of the parent's stream and verdicts that
// the chain waits for. It calls Pool.Wake when there is something new.
type Beside interface {
	// Propose hands over what is to go into the next batch: as much as fits into so many bytes, as
	// ledger.CarriedSize and ledger.VerdictSize count them. Use is called at most once, not at all
	// where there is nothing, and copies what it keeps before it returns. The entries ascend and
	// are those that follow the chain's, the verdicts are such as ledger.VerdictOf makes: what a
	// batch's decoder refuses would cost the bundles beside it their round. It must not block.
	// Nothing of the pool's is locked meanwhile, so that Propose may hold a lock under which Wake
	// is called.
	Propose(room int, use func(carried []ledger.Carried, verdicts []ledger.Verdict))
}

// turn is who goes first in a batch where there is not room for all.
type turn uint8

const (
	turnBeside turn = iota
	turnBundles
)

// Wake says that there is something beside: Ready gets a value.
func (p *Pool) Wake() { p.signal() }

// nextBeside is Next in a book of several shards. Where both want more than there is, clients'
// bundles and what is beside have half of the room each. The largest of either needs more than half
// of a small room: they go first in turn, and whose turn it is has room for its largest.
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

// reserve gives the room that clients' bundles get whatever is beside.
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
