package shards

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The defaults of VerdictsConfig.
const (
	// AgainAfterDefault is the minimum time between two proposals of a verdict.
	AgainAfterDefault = time.Second
	// AskAfterDefault is how long a transaction waits for a verdict before the node asks for it.
	// AskEveryDefault is how long until the node asks again.
	AskAfterDefault = 500 * time.Millisecond
	AskEveryDefault = time.Second
)

// Bounds of memory and work. What does not fit is dropped; a shard that waits asks again.
const (
	// queriesMax bounds the unanswered queries, queriesPerPeer those of one peer.
	queriesMax, queriesPerPeer = 256, 2
	// pushBehind bounds the blocks whose verdicts are told when many become durable at once. When a
	// node catches up, others have told the older verdicts.
	pushBehind = 256
	// pushAgain is how many blocks' verdicts a starting node tells once more.
	pushAgain = 16
	// askMessages bounds the queries to one shard in one look.
	askMessages = 8
)

// Chain is the source of verdicts; *store.Store implements it. One goroutine reads it.
type Chain interface {
	AppendedHeight() ledger.Height
	OwnVerdicts(height ledger.Height) ([]state.OwnVerdict, error)
	// Awaiting returns the transactions that wait for verdicts and the departures that are awaited.
	Awaiting() []state.Pending
	AwaitingCount() int
	Standing(verdict *ledger.Verdict) (verdicts.Standing, error)
	Verdict(id ledger.Hash, asks ledger.ShardID, upTo ledger.Height) (verdict ledger.Verdict,
		made bool, err error)
	Testimony(id ledger.Hash, asked ledger.Testimony, upTo ledger.Height) (
		verdict ledger.Verdict, made bool, err error)
}

var _ Chain = (*store.Store)(nil)

// VerdictsConfig is the configuration of Verdicts.
type VerdictsConfig struct {
	Directory *Directory
	Control   *wire.Datagrams
	// Store returns the current chain; it must not block. Verdicts may read an earlier chain for a
	// moment longer. That chain may be a closed store, which answers with an error.
	Store func() Chain
	// Durable returns the height up to which blocks are durable, which never decreases; it must not
	// block.
	Durable func() ledger.Height
	// Ready, if set, is called by the goroutine of Verdicts when there is something to propose; it
	// must not block.
	Ready func()
	// Logger may be nil.
	Logger *slog.Logger
	// AgainAfter, AskAfter and AskEvery: zero means the default.
	AgainAfter, AskAfter, AskEvery time.Duration
	// Vouched is set in a book whose shards do not trust a single member of another shard: a
	// verdict is believed once more than half of the other shard's present members told it.
	Vouched bool
	// Groups reports whether the chain takes groups of verdicts, in a vouched book. The goroutine
	// of Verdicts calls it until it does, and again after Reset. nil means never.
	Groups func() bool
	// Prove, which may be nil, returns the verdict of another shard on a transaction that a
	// certificate of that shard proves, or does what else may help. Verdicts calls it, one call at
	// a time, for transactions that were asked for in vain. The result is believed at once. Prove
	// ends when its context does; Close waits for it.
	Prove func(ctx context.Context, shard ledger.ShardID, id ledger.Hash) (ledger.Verdict, error)

	// bounds are those of the memory of verdicts; zero means the default.
	bounds verdicts.Bounds
	faults faults
}

// faults are bugs that tests plant.
type faults struct {
	notDurable    bool // also tell verdicts of blocks that are only executed
	sameCandidate bool // send all queries to the first candidate
	exchange      verdicts.Fault
}

// Verdicts is the exchange of verdicts. All methods are safe for concurrent use.
type Verdicts struct {
	config VerdictsConfig
	wake   chan struct{}
	closed chan struct{}
	cancel context.CancelFunc // ends the certified proofs
	began  time.Time
	done   sync.WaitGroup
	once   sync.Once

	mu       sync.Mutex
	exchange *verdicts.Exchange
	// exposed has the times of the last log lines about contradictions, in a vouched book.
	exposed map[verdicts.Member]time.Time
	// unproved are at most proofsMax verdicts for which a certified proof is wanted. unprovedWake
	// gets a value with each.
	unproved     []verdicts.Key
	unprovedWake chan struct{}

	queries []query
	asking  map[rdmanet.PeerID]int // queries held, by peer
	durable ledger.Height          // set by DurableTo
	reset   bool                   // the store was replaced: look at once
	status  VerdictsStatus
	grouped atomic.Bool // what Groups returned

	// Only the goroutine uses the fields below.
	told    ledger.Height // the verdicts of blocks up to this height were told
	telling bool          // told is set
	waits   *verdicts.Asking
	look    time.Time // when to look at the waiting transactions; zero for never
	turns   map[ledger.ShardID]int
	// reminded is when Ready was last called for verdicts that were proposed before, or in a
	// vouched book at all.
	reminded time.Time
}

// query is a query from a member of another shard.
type query struct {
	from    rdmanet.PeerID
	shard   ledger.ShardID
	ids     []ledger.Hash
	subject ledger.Subject
}

// VerdictsStatus is the state of the exchange, for people.
type VerdictsStatus struct {
	// Awaited counts the verdicts to propose, Early those whose transactions are not in the chain
	// yet.
	Awaited, Early int
	// Words counts the words of members that wait for words of others, Contradicted the words
	// against a believed verdict or an earlier word of the same member, and Proved the verdicts
	// that were believed because of a certified proof.
	Words                int
	Contradicted, Proved uint64
	// Told counts the verdicts sent to members of other shards unasked, Answered those sent on
	// request, Asked the transactions asked for, Received the verdicts received, Proposed those
	// given to a batch, and Dropped those that were dropped.
	Told, Answered, Asked, Received, Proposed, Dropped uint64
}

// NewVerdicts registers for messages of wire.KindVerdicts and wire.KindVerdictQuery and
// starts. It fails if a part of the configuration is missing, or with an error of Control.
func NewVerdicts(config VerdictsConfig) (*Verdicts, error) {
	if config.Directory == nil || config.Control == nil || config.Store == nil ||
		config.Durable == nil {
		return nil, errors.New("shards: verdicts need a directory, the control lane, a chain " +
			"and its durable height")
	}
	if config.Ready == nil {
		config.Ready = func() {}
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	for _, each := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&config.AgainAfter, AgainAfterDefault}, {&config.AskAfter, AskAfterDefault},
		{&config.AskEvery, AskEveryDefault}} {
		if *each.value <= 0 {
			*each.value = each.standard
		}
	}
	if config.bounds == (verdicts.Bounds{}) {
		config.bounds = verdicts.DefaultBounds()
	}
	if config.Groups == nil {
		config.Groups = func() bool { return false }
	}
	v := &Verdicts{
		config: config, wake: make(chan struct{}, 1), closed: make(chan struct{}),
		began:  time.Now(),
		waits:  verdicts.NewAsking(config.AskAfter, config.AskEvery),
		asking: map[rdmanet.PeerID]int{}, turns: map[ledger.ShardID]int{},
		reset:   true, // look first at the transactions that already wait
		exposed: map[verdicts.Member]time.Time{}, unprovedWake: make(chan struct{}, 1),
	}
	v.exchange = verdicts.New(verdicts.Config{Vouched: config.Vouched,
		Own:     config.Directory.Own(),
		Shards:  func() int { return config.Directory.Tree().Shards() },
		Members: config.Directory.indexes, Groups: v.grouped.Load, Bounds: config.bounds,
		Fault: config.faults.exchange})
	if err := config.Control.Register(wire.KindVerdicts, v.receiveVerdicts); err != nil {
		return nil, err
	}
	if err := config.Control.Register(wire.KindVerdictQuery, v.receiveQuery); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	v.done.Go(v.run)
	if config.Prove != nil {
		v.done.Go(func() { v.proofs(ctx) })
	}
	v.nudge()
	return v, nil
}

// Close ends the exchange and waits for its goroutines. Messages that still arrive are dropped, and
// nothing more is proposed. A second Close also waits.
func (v *Verdicts) Close() {
	v.once.Do(func() {
		close(v.closed)
		v.cancel()
	})
	v.done.Wait()
}

func (v *Verdicts) isClosed() bool {
	select {
	case <-v.closed:
		return true
	default:
		return false
	}
}

// nudge wakes the goroutine.
func (v *Verdicts) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Applied records that a block was executed here and is in the chain. It is quick. Blocks come in
// order; after Reset they may begin at any height.
func (v *Verdicts) Applied(block *ledger.Block) {
	v.mu.Lock()
	found := v.contradict(v.exchange.Applied(block))
	v.mu.Unlock()
	v.log(found)
	v.nudge()
}

// DurableTo records that blocks up to a height are durable. Their verdicts go to the other shards.
func (v *Verdicts) DurableTo(height ledger.Height) {
	v.mu.Lock()
	v.durable = max(v.durable, height)
	v.mu.Unlock()
	v.nudge()
}

// Reset records that the store was replaced. All known verdicts are judged anew.
func (v *Verdicts) Reset() {
	v.mu.Lock()
	v.reset = true
	v.grouped.Store(false) // until the goroutine has looked at the other store
	v.exchange.Reset()
	v.mu.Unlock()
	v.nudge()
}

// Propose returns verdicts that this chain waits for, as many as fit into room bytes of a batch,
// each again only after AgainAfter. In a vouched book it returns in each call all that this node
// believes: groups by their ids, and single verdicts by transaction id, then shard. If not all fit,
// it returns the first ones of both. The caller owns the slices, but not the ids of groups.
func (v *Verdicts) Propose(room int) ([]ledger.VerdictGroup, []ledger.Verdict) {
	if room <= 0 || v.isClosed() {
		return nil, nil
	}
	v.mu.Lock()
	groups, proposed := v.exchange.ProposeWithin(room, ledger.MaxBatchVerdicts,
		time.Since(v.began), v.config.AgainAfter)
	v.status.Proposed += uint64(len(proposed))
	for i := range groups {
		v.status.Proposed += uint64(len(groups[i].IDs))
	}
	v.mu.Unlock()
	if len(proposed) > 0 && !v.config.Vouched {
		v.nudge() // to schedule their next proposal
	}
	return groups, proposed
}

// Pending reports whether Propose would return a verdict now.
func (v *Verdicts) Pending() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.exchange.Pending(time.Since(v.began), v.config.AgainAfter)
}

// Status returns the state of the exchange.
func (v *Verdicts) Status() VerdictsStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	status, counts := v.status, v.exchange.Counts()
	status.Awaited, status.Early, status.Words = counts.Awaited, counts.Early, counts.Words
	status.Dropped += counts.Dropped
	return status
}

// fromOther returns the sender of a message, if it is a member of another shard, and reports
// whether to accept the message.
func (v *Verdicts) fromOther(from rdmanet.Peer) (verdicts.Member, bool) {
	shard, member, known := v.config.Directory.Find(from.ID)
	if !known || shard == v.config.Directory.Own() || v.isClosed() {
		v.config.Logger.Debug("message on verdicts dropped", "peer", from, "known", known)
		return verdicts.Member{}, false
	}
	return verdicts.Member{Shard: shard, Index: member.Index}, true
}

// receiveVerdicts queues another shard's verdicts for the goroutine to judge: all, or in a vouched
// book those that are believed now.
func (v *Verdicts) receiveVerdicts(from rdmanet.Peer, payload []byte) {
	sender, other := v.fromOther(from)
	if !other {
		return
	}
	more, err := false, error(nil)
	if v.config.Vouched && isGroup(payload) {
		var told ledger.VerdictGroup
		if told, err = decodeGroup(payload, sender.Shard); err == nil {
			more = v.hearGroup(sender, told)
		}
	} else {
		var told []ledger.Verdict
		if told, err = decodeVerdicts(payload, sender.Shard); err == nil {
			more = v.hear(sender, told)
		}
	}
	if err != nil {
		v.config.Logger.Error("verdicts dropped", "peer", from, "shard", sender.Shard, "error", err)
	}
	if more {
		v.nudge()
	}
}

// receiveQuery queues a query for the goroutine to answer.
func (v *Verdicts) receiveQuery(from rdmanet.Peer, payload []byte) {
	sender, other := v.fromOther(from)
	if !other {
		return
	}
	ids, subject, err := decodeQuery(payload)
	if err != nil {
		v.config.Logger.Error("question for verdicts dropped", "peer", from, "shard",
			sender.Shard, "error", err)
		return
	}
	v.mu.Lock()
	room := len(v.queries) < queriesMax && v.asking[from.ID] < queriesPerPeer
	if room {
		v.queries = append(v.queries, query{from.ID, sender.Shard, ids, subject})
		v.asking[from.ID]++
	}
	v.mu.Unlock()
	if room {
		v.nudge()
	}
}
