package shards

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The defaults of VerdictsConfig.
const (
	// AgainAfterDefault is how long a verdict that was proposed is not proposed again.
	AgainAfterDefault = time.Second
	// AskAfterDefault is how long a transaction waits for a verdict until it is asked for, and
	// AskEveryDefault how long until it is asked for again.
	AskAfterDefault = 500 * time.Millisecond
	AskEveryDefault = time.Second
)

// Bounds of what is kept and done. What does not fit is dropped: who waits asks again.
const (
	// awaitedMax bounds the verdicts to propose, earlyMax those that came before their
	// transactions, settledMax those remembered as over, inboxMax those that were received and not
	// judged yet.
	awaitedMax, earlyMax, settledMax, inboxMax = ledger.MaxWaiting, 1 << 16, 1 << 15, 1 << 16
	// queriesMax bounds the questions that wait for their answers, queriesPerPeer those of one
	// peer.
	queriesMax, queriesPerPeer = 256, 2
	// pushBehind is how many blocks' verdicts are told at most, where many become durable at once:
	// of a node that catches up others have told the older ones.
	pushBehind = 256
	// pushAgain is how many blocks' verdicts are told once more by a node that starts.
	pushAgain = 16
	// askMessages bounds the questions to one shard at a time.
	askMessages = 8
)

// Chain is what verdicts are read from; a *store.Store is one. It is read by one goroutine.
type Chain interface {
	AppendedHeight() ledger.Height
	Block(height ledger.Height) (*ledger.Block, error)
	Crossing(id ledger.Hash) (store.Crossing, error)
	Pending() []ledger.Pending
	PendingCount() int
	Standing(verdict *ledger.Verdict) (store.Standing, error)
	Verdict(id ledger.Hash, upTo ledger.Height) (verdict ledger.Verdict, made bool, err error)
}

var _ Chain = (*store.Store)(nil)

// VerdictsConfig is what NewVerdicts needs.
type VerdictsConfig struct {
	Directory *Directory
	Control   *control.Control
	// Store gives the chain as of now; it must not block. One that it gave before may still be read
	// for a moment: a closed store, which answers with an error, is well.
	Store func() Chain
	// Durable gives the height up to which blocks are durable, which is never taken back; it must
	// not block.
	Durable func() ledger.Height
	// Ready, if set, is called when there is something to propose, by the goroutine of Verdicts; it
	// must not block.
	Ready func()
	// Logger may be nil.
	Logger *slog.Logger
	// AgainAfter, AskAfter and AskEvery are the defaults where they are 0.
	AgainAfter, AskAfter, AskEvery time.Duration

	faults faults
}

// faults are bugs that tests plant.
type faults struct {
	notDurable    bool // verdicts are told of blocks that are only executed
	sameCandidate bool // questions always go to the first candidate
	forgetEarly   bool // verdicts that come before their transactions are forgotten
}

// Verdicts is the exchange of verdicts. All methods may be called from several goroutines.
type Verdicts struct {
	config VerdictsConfig
	wake   chan struct{}
	closed chan struct{}
	done   sync.WaitGroup
	once   sync.Once

	mu      sync.Mutex
	awaited *awaitedSet
	early   *earlySet
	settled *recentSet
	inbox   []ledger.Verdict // to be judged: inboxMax that were received, and what was in the sets
	queries []query
	asking  map[rdmanet.PeerID]int // questions in queries, by peer
	durable ledger.Height          // as DurableTo said
	// applied counts calls of Applied and Reset: what was read of the chain before is out of date.
	applied uint64
	fresh   bool // there may be transactions that wait: look when it is time
	reset   bool // another store is there: look at once
	status  VerdictsStatus

	// What follows is the goroutine's own.
	told    ledger.Height // the verdicts of blocks up to there were told
	telling bool          // told is set
	waiting map[ledger.Hash]*waiting
	look    time.Time // when to look at what waits; zero for never
	turns   map[ledger.ShardID]int
}

// query is a question of a member of another shard.
type query struct {
	from rdmanet.PeerID
	ids  []ledger.Hash
}

// waiting is a transaction that waits for verdicts.
type waiting struct {
	since, asked time.Time
	seen         bool // in the present look
}

// VerdictsStatus is where the exchange stands, for people.
type VerdictsStatus struct {
	// Awaited are the verdicts to propose, Early those whose transactions are not in the chain yet.
	Awaited, Early int
	// Told counts the verdicts sent to members of other shards unasked, Answered those sent on
	// request, Asked the transactions asked for, Received the verdicts that came, Proposed those
	// given to a batch, and Dropped those for which there was no room.
	Told, Answered, Asked, Received, Proposed, Dropped uint64
}

// NewVerdicts takes the messages of control.KindVerdicts and control.KindVerdictQuery and begins.
// Errors are those of Control, or say what is missing.
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
	v := &Verdicts{
		config: config, wake: make(chan struct{}, 1), closed: make(chan struct{}),
		awaited: newAwaitedSet(), early: newEarlySet(earlyMax), settled: newRecentSet(settledMax),
		asking:  map[rdmanet.PeerID]int{},
		waiting: map[ledger.Hash]*waiting{}, turns: map[ledger.ShardID]int{},
		reset: true, // what the chain waits for already is looked at first
	}
	if err := config.Control.Register(control.KindVerdicts, v.receiveVerdicts); err != nil {
		return nil, err
	}
	if err := config.Control.Register(control.KindVerdictQuery, v.receiveQuery); err != nil {
		return nil, err
	}
	v.done.Go(v.run)
	v.nudge()
	return v, nil
}

// Close ends the exchange and waits for its goroutine. What still comes is dropped, and nothing is
// proposed any more. Closing again waits too.
func (v *Verdicts) Close() {
	v.once.Do(func() { close(v.closed) })
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

// nudge has the goroutine look what there is to do.
func (v *Verdicts) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Applied says that a block was executed here, which the chain has. It is quick. Blocks come in
// their order; after Reset they may begin anywhere.
func (v *Verdicts) Applied(block *ledger.Block) {
	v.mu.Lock()
	v.applied++
	for i := range block.Entries {
		entry := &block.Entries[i]
		if verdict := entry.Transaction.Verdict; verdict != nil {
			switch entry.Result.Code {
			case ledger.Settled, ledger.Released:
				v.awaited.removeAll(verdict.ID)
				v.settled.add(keyOf(verdict))
			case ledger.Applied:
				v.awaited.remove(keyOf(verdict))
				v.settled.add(keyOf(verdict))
			}
			continue
		}
		if entry.Result.Code == ledger.SetAside {
			v.fresh = true
		}
		if v.early.len() > 0 {
			v.inbox = append(v.inbox, v.early.take(entry.ID)...)
		}
	}
	v.mu.Unlock()
	v.nudge()
}

// DurableTo says that blocks up to a height are durable: their verdicts go to the other shards.
func (v *Verdicts) DurableTo(height ledger.Height) {
	v.mu.Lock()
	v.durable = max(v.durable, height)
	v.mu.Unlock()
	v.nudge()
}

// Reset says that another store took the place of the one before: what is known of verdicts is
// judged anew.
func (v *Verdicts) Reset() {
	v.mu.Lock()
	v.applied++
	v.reset = true
	v.settled.clear()
	v.inbox = append(append(v.inbox, v.awaited.drain()...), v.early.drain()...)
	v.mu.Unlock()
	v.nudge()
}

// Propose gives verdicts that this chain waits for, as many as fit into so many bytes of a batch,
// each again only after AgainAfter. The caller owns the slice.
func (v *Verdicts) Propose(room int) []ledger.Verdict {
	most := min(room/ledger.VerdictSize, ledger.MaxBatchVerdicts)
	if most <= 0 || v.isClosed() {
		return nil
	}
	v.mu.Lock()
	verdicts := v.awaited.propose(most, time.Now(), v.config.AgainAfter)
	v.status.Proposed += uint64(len(verdicts))
	v.mu.Unlock()
	if len(verdicts) > 0 {
		v.nudge() // to say when they are to be proposed again
	}
	return verdicts
}

// Pending reports whether Propose would give something now.
func (v *Verdicts) Pending() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.awaited.fresh.Len() > 0 || v.awaited.due(time.Now(), v.config.AgainAfter)
}

// Status tells where the exchange stands.
func (v *Verdicts) Status() VerdictsStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	status := v.status
	status.Awaited, status.Early = v.awaited.len(), v.early.len()
	return status
}

// fromOther finds the shard of a member of another shard, and reports whether its message is to be
// taken.
func (v *Verdicts) fromOther(from rdmanet.Peer) (ledger.ShardID, bool) {
	shard, _, known := v.config.Directory.Find(from.ID)
	if !known || shard == v.config.Directory.Own() || v.isClosed() {
		v.config.Logger.Debug("message on verdicts dropped", "peer", from, "known", known)
		return 0, false
	}
	return shard, true
}

// receiveVerdicts takes what another shard says, to be judged by the goroutine.
func (v *Verdicts) receiveVerdicts(from rdmanet.Peer, payload []byte) {
	shard, other := v.fromOther(from)
	if !other {
		return
	}
	verdicts, err := decodeVerdicts(payload, shard)
	if err != nil {
		v.config.Logger.Error("verdicts dropped", "peer", from, "shard", shard, "error", err)
		return
	}
	v.mu.Lock()
	before := len(v.inbox)
	for i := range verdicts {
		// Most come several times.
		key := keyOf(&verdicts[i])
		if v.settled.has(key) || v.awaited.has(key) || v.early.has(key) {
			continue
		}
		if len(v.inbox) >= inboxMax {
			v.status.Dropped++
			continue
		}
		v.inbox = append(v.inbox, verdicts[i])
	}
	v.status.Received += uint64(len(verdicts))
	more := len(v.inbox) > before
	v.mu.Unlock()
	if more {
		v.nudge()
	}
}

// receiveQuery takes a question, to be answered by the goroutine.
func (v *Verdicts) receiveQuery(from rdmanet.Peer, payload []byte) {
	shard, other := v.fromOther(from)
	if !other {
		return
	}
	ids, err := decodeQuery(payload)
	if err != nil {
		v.config.Logger.Error("question for verdicts dropped", "peer", from, "shard", shard,
			"error", err)
		return
	}
	v.mu.Lock()
	room := len(v.queries) < queriesMax && v.asking[from.ID] < queriesPerPeer
	if room {
		v.queries = append(v.queries, query{from.ID, ids})
		v.asking[from.ID]++
	}
	v.mu.Unlock()
	if room {
		v.nudge()
	}
}
