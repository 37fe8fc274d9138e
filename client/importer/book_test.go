package importer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// book is a ledger of several shards in memory: the chains of state.State, connected by hand. A
// goroutine makes blocks for random shards from a random part of their input. Streams and verdicts
// therefore arrive late, and messages overtake each other in all possible ways.
type book struct {
	tree   *ledger.ShardTree
	random *rand.Rand

	mutex   sync.Mutex
	shards  []*shardChain
	time    ledger.Milliseconds
	changed chan struct{} // closed and replaced at every change
	stop    chan struct{}
	done    chan struct{}
}

// shardChain is the chain of one shard, and its only node's pool.
type shardChain struct {
	genesis  *ledger.Genesis
	state    *state.State
	parent   state.Parent
	entries  map[ledger.Hash]*ledger.Entry
	streams  map[ledger.ShardID][]ledger.Carried
	verdicts []ledger.Verdict              // for this shard, and in no block of it yet
	ended    map[ledger.Hash]ledger.Code   // the results that ended the waits
	reasons  map[ledger.Hash]ledger.Result // of the released transactions
	pool     []*ledger.Bundle
	pending  map[ledger.Hash]bool
	stopped  bool
}

func newBook(seed uint64, parents ...ledger.ShardID) *book {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	if seed%4 > 0 {
		genesis.Version = ledger.DeadlineVersion
	}
	b := &book{tree: genesis.ShardTree(), random: rand.New(rand.NewPCG(seed, 0)),
		time:    genesis.Time,
		changed: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	for shard := range parents {
		one, err := genesis.ForShard(ledger.ShardID(shard))
		if err != nil {
			panic(err)
		}
		b.shards = append(b.shards, &shardChain{
			genesis: one, state: state.New(one),
			parent:  state.Parent{Header: one.Block().Header, Hash: one.Hash()},
			entries: map[ledger.Hash]*ledger.Entry{},
			streams: map[ledger.ShardID][]ledger.Carried{}, ended: map[ledger.Hash]ledger.Code{},
			reasons: map[ledger.Hash]ledger.Result{}, pending: map[ledger.Hash]bool{},
		})
	}
	go b.seal()
	return b
}

func (b *book) close() {
	close(b.stop)
	<-b.done
}

// seal makes blocks until the book is closed.
func (b *book) seal() {
	defer close(b.done)
	for {
		b.mutex.Lock()
		changed := b.changed
		idle := true
		for range 4 * len(b.shards) {
			if b.round(ledger.ShardID(b.random.IntN(len(b.shards)))) {
				idle = false
			}
		}
		b.mutex.Unlock()
		select {
		case <-b.stop:
			return
		default:
		}
		if idle {
			select {
			case <-changed:
			case <-time.After(50 * time.Microsecond): // for input that was left out at random
			case <-b.stop:
				return
			}
		}
	}
}

// round makes a block of a shard, if there is any input for it.
func (b *book) round(shard ledger.ShardID) bool {
	c := b.shards[shard]
	if c.stopped {
		return false
	}
	batch := &ledger.Batch{}
	if parent, below := b.tree.Parent(shard); below {
		stream := b.shards[parent].streams[shard]
		from := int(c.state.Carried())
		batch.Carried = stream[from : from+b.random.IntN(len(stream)-from+1)]
	}
	for _, verdict := range c.verdicts {
		if b.random.IntN(2) == 0 && c.state.Awaits(&verdict) {
			batch.Verdicts = append(batch.Verdicts, verdict)
		}
	}
	taken := b.random.IntN(len(c.pool) + 1)
	for _, bundle := range c.pool[:taken] {
		batch.Bundles = append(batch.Bundles, bundle.Encode())
	}
	b.time++
	batch.Header.Time, batch.Clocks = b.time, []ledger.MemberClock{{Member: 0}}
	c.parent.Members = c.state.Membership
	draft := c.state.Seal(c.parent, 1, ledger.Round(b.time),
		ledger.VerifyBatches([][]byte{batch.Encode()}), func(id ledger.Hash,
			_ *ledger.Transaction) bool {
			return c.entries[id] != nil
		})
	for _, bundle := range c.pool[:taken] {
		for _, id := range bundle.IDs() {
			delete(c.pending, id)
		}
	}
	c.pool = c.pool[taken:]
	if draft == nil {
		return false
	}
	block, changes := c.state.Execute(draft)
	c.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	for _, entry := range block.All() {
		c.entries[entry.ID] = entry
		if verdict := entry.Transaction().Verdict; verdict != nil &&
			entry.Result.Code == ledger.Released {
			c.reasons[verdict.ID] = verdict.Result
		}
	}
	for _, forward := range changes.Forwards {
		c.streams[forward.Child] = append(c.streams[forward.Child],
			ledger.Carried{Number: forward.Number,
				Bundle: block.CarriedBundle(int(forward.Bundle))})
	}
	for _, verdict := range changes.Verdicts {
		for _, to := range verdict.To {
			b.shards[to].verdicts = append(b.shards[to].verdicts, verdict.Verdict)
		}
	}
	for _, settlement := range changes.Settlements {
		c.ended[settlement.ID] = ledger.Released
		if settlement.Applied {
			c.ended[settlement.ID] = ledger.Settled
		}
	}
	c.verdicts = slices.DeleteFunc(c.verdicts, func(v ledger.Verdict) bool {
		return c.entries[v.ID] != nil && !c.state.Awaits(&v)
	})
	b.notify()
	return true
}

// now is the time of the book.
func (b *book) now() time.Time {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return time.UnixMilli(int64(b.time))
}

// later lets a time pass in which nothing happens.
func (b *book) later(after time.Duration) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.time += ledger.Milliseconds(after.Milliseconds())
}

// quiet waits until nothing is under way any more.
func (b *book) quiet() {
	busy := func() bool {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		for i, c := range b.shards {
			parent, below := b.tree.Parent(ledger.ShardID(i))
			if len(c.pool) > 0 || c.state.PendingCount() > 0 || below && int(c.state.Carried()) <
				len(b.shards[parent].streams[ledger.ShardID(i)]) {
				return true
			}
		}
		return false
	}
	for busy() {
		time.Sleep(time.Millisecond)
	}
}

func (b *book) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// halt stops a shard, or lets it continue. Its node loses its pool.
func (b *book) halt(shard ledger.ShardID, stopped bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	c := b.shards[shard]
	c.stopped, c.pool, c.pending = stopped, nil, map[ledger.Hash]bool{}
	b.notify()
}

// place returns the state of a transaction in a shard, and its result.
func (b *book) place(shard ledger.ShardID, id ledger.Hash) (string, ledger.Result) {
	c := b.shards[shard]
	entry := c.entries[id]
	switch {
	case entry == nil:
		return "absent", ledger.Result{}
	case entry.Result.OK(), c.ended[id] == ledger.Settled:
		return "settled", ledger.Result{}
	case c.ended[id] == ledger.Released:
		return "refused", c.reasons[id]
	case entry.Result.Code == ledger.SetAside:
		return "waiting", entry.Result
	case entry.Result.Code == ledger.Relayed:
		return "passed", entry.Result
	}
	return "refused", entry.Result
}

// status returns the status that the home of a transaction's signer reports.
func (b *book) status(id ledger.Hash,
	transaction *ledger.Transaction) *ledgerdv1.TransactionStatus {
	status := &ledgerdv1.TransactionStatus{Id: id[:], IdHex: id.String(),
		State: ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING}
	switch state, result := b.place(b.shards[0].state.HomeShard(transaction.Signer), id); state {
	case "settled":
		status.State, status.Height = ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE, 1
	case "refused":
		status.State, status.Height = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED, 1
		status.ReasonCode, status.Reason = api.ReasonCode(result.Code), result.String()
	}
	return status
}

// sums returns all balances, by the accounts' names in the file.
func (b *book) sums() map[string]int64 {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	sums := map[string]int64{}
	for _, c := range b.shards {
		_ = c.state.Entries(func(key, value []byte) error {
			if !state.IsAccountKey(key) {
				return nil
			}
			account, err := state.DecodeAccount(state.AccountOfKey(key), value)
			if err != nil {
				panic(err)
			}
			for _, balance := range account.Balances {
				amount, _ := balance.Settled().Int64()
				sums[account.Alias] += amount
			}
			return nil
		})
	}
	return sums
}

// transactions returns how many clients' transactions are in the chains.
func (b *book) transactions() int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	ids := map[ledger.Hash]bool{}
	for _, c := range b.shards {
		for id, entry := range c.entries {
			if entry.Transaction().Verdict == nil {
				ids[id] = true
			}
		}
	}
	return len(ids)
}

// door is a node of a shard.
type door struct {
	book  *book
	shard ledger.ShardID
}

var (
	_             Nodes = door{}
	errNoAnswer         = errors.New("no answer")
	errNotFound         = &client.Failure{Code: connect.CodeNotFound, Message: "not found"}
	errNotWriting       = &client.Failure{Code: connect.CodeUnavailable,
		Message: "the shard is stopped", Retry: true}
)

// connect is Options.Connect: an address is the number of a shard.
func (b *book) connect(addresses []string) (Nodes, error) {
	return door{b, ledger.ShardID(addresses[0][len("http://shard-")] - '0')}, nil
}

func (d door) ChainGenesis(context.Context) (*ledger.Genesis, error) {
	return d.book.shards[d.shard].genesis, nil
}

func (d door) Tree(context.Context) (*ledgerdv1.Tree, error) {
	tree := &ledgerdv1.Tree{}
	for shard := range d.book.shards {
		tree.Shards = append(tree.Shards, &ledgerdv1.Shard{Shard: uint32(shard),
			Members: []*ledgerdv1.ShardMember{{ApiAddress: "shard-" + string(rune('0'+shard)) +
				":80"}, {}}})
	}
	return tree, nil
}

func (d door) Organisation(_ context.Context,
	name ledger.OrganisationName) (*ledgerdv1.Organisation, error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	own := d.book.shards[d.shard].state
	found, known := own.Organisation(name)
	if !known {
		return nil, errNotFound
	}
	its := &ledgerdv1.Organisation{Name: string(name), Shard: uint32(own.HomeShard(name))}
	for _, key := range found.Keys {
		its.PublicKeys = append(its.PublicKeys, key[:])
	}
	return its, nil
}

func (d door) NextSequence(_ context.Context, organisation ledger.OrganisationName,
	stream uint64) (uint64, error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	home := d.book.shards[d.book.shards[0].state.HomeShard(organisation)].state
	next := uint64(0)
	for sequence := range uint64(ledger.WindowSize) {
		if !home.Fresh(organisation, ledger.Nonce{Stream: stream, Sequence: sequence}) {
			next = sequence + 1
		}
	}
	return next, nil
}

func (d door) Transaction(_ context.Context, id ledger.Hash) (*ledgerdv1.Transaction, error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	shown := &ledgerdv1.Transaction{}
	for shard, c := range d.book.shards {
		if entry := c.entries[id]; entry != nil {
			shown.Status = d.book.status(id, entry.Transaction())
		}
		place, _ := d.book.place(ledger.ShardID(shard), id)
		shown.Places = append(shown.Places, &ledgerdv1.ShardPlace{Shard: uint32(shard),
			State: place, Level: ledgerdv1.Level_LEVEL_DURABLE})
	}
	if shown.Status == nil {
		return nil, errNotFound
	}
	return shown, nil
}

// admit puts a bundle into the pool of its entry shard.
func (d door) admit(bundle *ledger.Bundle) error {
	c := d.book.shards[d.book.shards[0].state.BundleEntry(bundle)]
	if c.stopped {
		return errNotWriting
	}
	if err := ledger.VerifyBundle(bundle, c.genesis, c.genesis.Book(), c.state); err != nil {
		return &client.Failure{Code: connect.CodeFailedPrecondition, Message: err.Error()}
	}
	fresh := false
	for _, id := range bundle.IDs() {
		fresh = fresh || c.entries[id] == nil && !c.pending[id]
	}
	if fresh {
		c.pool = append(c.pool, bundle)
		for _, id := range bundle.IDs() {
			c.pending[id] = true
		}
	}
	d.book.notify()
	return nil
}

func (d door) Submit(ctx context.Context, bundle *ledger.Bundle,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	for {
		if err := d.admit(bundle); err != nil {
			return nil, err
		}
		reached := true
		statuses := make([]*ledgerdv1.TransactionStatus, bundle.Len())
		for i := range statuses {
			statuses[i] = d.book.status(bundle.ID(i), bundle.Transaction(i))
			reached = reached && client.Reached(statuses[i], level)
		}
		if reached {
			return statuses, nil
		}
		changed := d.book.changed
		d.book.mutex.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		d.book.mutex.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// A chain of several shards takes no packed bundles.
func (d door) Packs(context.Context) (bool, error) { return false, nil }

// Asset knows none: no line of these tests has decimals.
func (d door) Asset(context.Context, ledger.AssetName) (*ledgerdv1.Asset, error) {
	return nil, errNotFound
}

func (d door) NeedsDeadlines(context.Context) (bool, error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	return ledger.TakesDeadlines(d.book.shards[0].state.Version()), nil
}

func (d door) Record(_ context.Context, key ledger.RecordKey) (*ledgerdv1.GetRecordResponse,
	error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	home := d.book.shards[d.book.shards[0].state.HomeShard(key.Organisation())]
	if _, written := home.state.Record(key); !written {
		return nil, errNotFound
	}
	for _, entry := range home.entries {
		for _, record := range entry.Transaction().Records {
			if record.Key == key && entry.Result.OK() { // these records are written only once
				return &ledgerdv1.GetRecordResponse{Record: &ledgerdv1.Record{
					Key: string(key), Value: record.Value}}, nil
			}
		}
	}
	return nil, errNotFound
}

// WaitAll is not asked in a book of several shards.
func (d door) WaitAll(context.Context, []ledger.Hash,
	ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	return nil, errNoAnswer
}

func (d door) SubmitInOrder(_ context.Context, bundles []*ledger.Bundle,
	after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error) {
	d.book.mutex.Lock()
	defer d.book.mutex.Unlock()
	c := d.book.shards[d.shard]
	if c.stopped {
		return nil, errNoAnswer
	}
	outcomes := make([]*ledgerdv1.BundleOutcome, len(bundles))
	refused := ""
	if !after.IsZero() && c.entries[after] == nil && !c.pending[after] {
		refused = "not known"
	}
	for i, bundle := range bundles {
		if entry := c.state.BundleEntry(bundle); refused == "" && entry != d.shard {
			return nil, &client.Failure{Code: connect.CodeInvalidArgument,
				Message: "it enters elsewhere"}
		}
		if refused == "" {
			if err := d.admit(bundle); err != nil {
				refused = err.Error()
			}
		}
		outcomes[i] = &ledgerdv1.BundleOutcome{Refused: refused, Retry: true}
	}
	return outcomes, nil
}

func (d door) Rotate() {}
func (d door) Close()  {}
