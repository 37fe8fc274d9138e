package mempool

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Input is what goes from other shards into a batch.
type Input struct {
	// Carried are entries of the parent's stream. They ascend and follow those in the chain. After
	// them come copies of transactions that are too late.
	Carried []ledger.Carried
	// Verdicts are verdicts that the chain waits for, made as by ledger.VerdictOf.
	Verdicts []ledger.Verdict
	// Groups are groups of such verdicts. They are empty unless Config.Vouch is set. With Verdicts,
	// they have at most ledger.MaxBatchVerdicts.
	Groups []ledger.VerdictGroup
	// Vouched are the entries of the parent's stream that this member vouches for, by ascending
	// number. They are empty unless Config.Vouch is set.
	Vouched []ledger.Vouched
}

func (i *Input) empty() bool {
	return len(i.Carried)+len(i.Verdicts)+len(i.Groups)+len(i.Vouched) == 0
}

// Beside is the input from other shards. It calls Pool.Wake when there is something new, and again
// after some patience while it has input that no block took.
type Beside interface {
	// Propose passes to use what goes into the next batch, as much as fits into room bytes, as
	// ledger.CarriedSize, ledger.VerdictSize, ledger.VerdictGroupSize and ledger.VoucherSize count
	// it. It calls use at most
	// once, and not at all if there is nothing. Use copies what it keeps before it returns.
	//
	// If the batch's decoder refused any of the input, the bundles in the same batch would lose
	// their round.
	//
	// Propose must not block. The pool holds no lock during the call, so Propose may hold a lock
	// under which Wake is called.
	Propose(room int, use func(Input))
}

// vouchedRoom is the room for a voucher that Beside always has beside the largest entry.
var vouchedRoom = ledger.VoucherSize(16)

// LargestBeside returns the most bytes that Beside needs to propose the largest entry of a stream.
func LargestBeside() int { return ledger.CarriedSize(ledger.MaxBundleBytes) + vouchedRoom }

// turn says which side goes first in a batch that has not room for both.
type turn uint8

const (
	turnBeside turn = iota
	turnBundles
)

// MeetingDefault is the distance of meetings if Meet was not called, for AllConcur.
const MeetingDefault = 4

// Meet sets the distance of the rounds that have input from Beside, with Config.Vouch, for the run
// that begins. It must be the same at all members, and more than the rounds that deliver the
// batches of one round: else these would have such input too, and lead to others for ever.
func (p *Pool) Meet(every uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meeting = every
}

// Wake reports that Beside has something new, or is out of patience: Ready gets a value.
func (p *Pool) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken, p.besides = true, true
	p.signal()
}

// NextIn implements driver.RoundSource. With Config.Vouch, Beside repeats all that it has, and
// input counts only if most members have it in one round. So input from Beside goes into meetings:
// one of as many rounds as Meet says, the same at all members. It is a reason for rounds up to one
// meeting after Wake, and no longer. Else rounds would follow each other for as long as too few
// members have it.
func (p *Pool) NextIn(round func() uint64, due func() bool, maxBytes int) []byte {
	if p.config.Vouch == nil {
		return p.Next(maxBytes)
	}
	p.mu.Lock()
	own, woken, besides := p.next < len(p.queue) || p.marks.Any() || p.due, p.woken, p.besides
	every := p.meeting
	p.mu.Unlock()
	meeting := besides && round()%every == 0
	switch {
	case !own && !woken && !(meeting && due()):
		return nil
	case meeting:
		p.mu.Lock()
		p.woken, p.besides = false, false // unless there is input, or Beside wakes the pool again
		p.mu.Unlock()
		return p.Next(maxBytes)
	}
	room := min(maxBytes, ledger.MaxBatchBytes) - headerRoom
	stamp := p.stamp(&room)
	p.mu.Lock()
	defer p.mu.Unlock()
	payload := p.payload(stamp, room, Input{})
	if payload == nil && woken {
		return appendMarks(nil, Marks{}) // a round on the way to the meeting
	}
	return payload
}

// progress begins rounds up to a meeting if a block took input from other shards: there may be more
// of it than fits into a batch. The caller holds the lock.
func (p *Pool) progress(block *ledger.Block) {
	took := p.besides && (slices.ContainsFunc(block.Bundles, func(b ledger.BundleSeal) bool {
		return b.Number > 0
	}) || slices.ContainsFunc(block.Unpacked, func(e ledger.Entry) bool {
		return e.Transaction() != nil && e.Transaction().Verdict != nil
	}))
	if took {
		p.woken = true
		p.signal()
	}
}

// nextBeside is Next in a book of several shards. If clients' bundles and Beside both want more
// than there is, each gets half of the room. The largest item of either side needs more than half
// of a small room. So they go first in turn, and the side whose turn it is has room for its largest
// item.
func (p *Pool) nextBeside(stamp stamp, room int) (payload []byte) {
	reserved := p.reserve(room)
	made := false
	use := func(input Input) {
		if !made {
			made, payload = true, p.payloadBeside(stamp, room, reserved, input)
		}
	}
	p.config.Beside.Propose(max(0, room-reserved), func(input Input) {
		if !input.empty() {
			p.mu.Lock()
			p.besides = true
			p.mu.Unlock()
		}
		use(input)
	})
	use(Input{})
	return payload
}

// reserve returns the room that clients' bundles get, whatever Beside proposes.
func (p *Pool) reserve(room int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	share := room - max(room/2, LargestBeside())
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

func (p *Pool) payloadBeside(stamp stamp, room, reserved int, input Input) []byte {
	left := room - reserved
	if p.config.Vouch == nil {
		input.Vouched, input.Groups = nil, nil
	} else if !input.empty() {
		most := (left - ledger.VoucherSize(0)) / ledger.VouchedSize
		input.Vouched = input.Vouched[:max(0, min(len(input.Vouched), most,
			ledger.MaxBatchVouched))]
		left -= ledger.VoucherSize(len(input.Vouched))
	}
	fitting := 0
	for fitting < min(len(input.Carried), ledger.MaxBatchCarried) &&
		len(input.Carried[fitting].Bundle) <= ledger.MaxBundleBytes &&
		ledger.CarriedSize(len(input.Carried[fitting].Bundle)) <= left {
		left -= ledger.CarriedSize(len(input.Carried[fitting].Bundle))
		fitting++
	}
	input.Carried = input.Carried[:fitting]
	most := ledger.MaxBatchVerdicts
	for i := range input.Groups {
		count := len(input.Groups[i].IDs)
		if size := ledger.VerdictGroupSize(count); count <= most && size <= left {
			most, left = most-count, left-size
			continue
		}
		input.Groups = input.Groups[:i]
		break
	}
	input.Verdicts = input.Verdicts[:min(len(input.Verdicts), most,
		max(0, left)/ledger.VerdictSize)]
	left -= ledger.VerdictSize * len(input.Verdicts)

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.turn == turnBeside && !input.empty():
		p.turn = turnBundles
	case p.turn == turnBundles && reserved > 0:
		p.turn = turnBeside
	}
	return p.payload(stamp, reserved+left, input)
}
