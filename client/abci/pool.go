package abci

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// batchBytes bounds the transactions of one ledger transaction: what is left of its bytes after the
// keys of the records and everything else.
const batchBytes = ledger.MaxTransactionBytes - ledger.MaxRecords*(ledger.MaxAccountPath+16) - 1<<10

// preparePause is the pause after a proposal that the application did not prepare.
const preparePause = 200 * time.Millisecond

// batchesMax is how many ledger transactions of a pool are under way at once.
const batchesMax = 16

// The errors of a pool, in the words that CometBFT's clients look for.
var (
	errKnown  = errors.New("tx already exists in cache")
	errNoPost = errors.New("this adapter posts nothing: set post in its configuration to the " +
		"organisation that signs, or post records with `ledgerd tx put`")
	errStopped = errors.New("the adapter is stopping")
)

// Post submits a ledger transaction after all that were submitted before. Its outcome comes from
// the function that it returns. See client.Caller.Begin.
type Post func(ctx context.Context, transaction ledger.Transaction) (
	outcome func(context.Context) (client.Answer, error), err error)

// pending is a transaction that a client posted.
type pending struct {
	transaction []byte
	hash        transactionHash
	// posting is closed when the transaction is about to be posted. Place is then where it gets
	// into a block, and leave ends that. Failed gets the reason why it will not.
	posting chan struct{}
	place   <-chan place
	leave   func()
	failed  chan error
}

func (p *pending) fail(err error) {
	select {
	case p.failed <- err:
	default: // it failed before
	}
}

// pool takes transactions from clients, and posts them. It is safe for concurrent use.
type pool struct {
	config       PoolConfig
	prepareTime  time.Duration
	chain        string
	shard        ledger.ShardID
	organisation ledger.OrganisationName
	application  *application
	results      *results
	post         Post // nil: nobody can post
	ready        chan struct{}
	outcomes     sync.WaitGroup

	mutex  sync.Mutex
	queue  []*pending
	count  int // of the queue, and of those that are being checked
	bytes  int
	known  map[transactionHash]uint64 // the number in order
	order  []transactionHash          // from number first on
	first  uint64
	closed bool
}

func newPool(options *Options, application *application, results *results) *pool {
	return &pool{config: options.Config.Pool,
		prepareTime: time.Duration(options.Config.Timing.Check),
		chain:       options.Config.Genesis.Chain,
		shard:       options.Config.Shard, organisation: options.Config.Post,
		application: application, results: results, post: options.Post,
		ready: make(chan struct{}, 1), known: make(map[transactionHash]uint64)}
}

// take checks a transaction, and queues it if the application would take it.
func (p *pool) take(ctx context.Context, transaction []byte) (TxResult, *pending, error) {
	switch {
	case p.post == nil:
		return TxResult{}, nil, errNoPost
	case len(transaction) > ledger.MaxRecordValue:
		return TxResult{}, nil, fmt.Errorf("tx too large. max size is %d, but got %d",
			ledger.MaxRecordValue, len(transaction))
	}
	taken := &pending{transaction: transaction, hash: sha256.Sum256(transaction),
		posting: make(chan struct{}), failed: make(chan error, 1)}
	if err := p.reserve(taken); err != nil {
		return TxResult{}, nil, err
	}
	checked, err := p.application.check(ctx, transaction)
	if err == nil && checked.Code == 0 && len(transaction) == 0 {
		err = errors.New("the application takes an empty transaction, and the ledger carries none")
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err == nil && p.closed {
		err = errStopped
	}
	if err != nil || checked.Code != 0 {
		p.release(taken)
		delete(p.known, taken.hash)
		return checked, nil, err
	}
	p.queue = append(p.queue, taken)
	select {
	case p.ready <- struct{}{}:
	default:
	}
	return checked, taken, nil
}

// reserve makes room for a transaction, and remembers it.
func (p *pool) reserve(taken *pending) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed {
		return errStopped
	}
	if _, known := p.known[taken.hash]; known {
		return errKnown
	}
	if p.count >= p.config.Transactions || p.bytes+len(taken.transaction) > p.config.Bytes {
		return fmt.Errorf("mempool is full: number of txs %d (max: %d), total txs bytes %d "+
			"(max: %d)", p.count, p.config.Transactions, p.bytes, p.config.Bytes)
	}
	p.count++
	p.bytes += len(taken.transaction)
	p.known[taken.hash] = p.first + uint64(len(p.order))
	p.order = append(p.order, taken.hash)
	for len(p.order) > p.config.Remembered {
		if p.known[p.order[0]] == p.first {
			delete(p.known, p.order[0])
		}
		p.order = p.order[1:]
		p.first++
	}
	return nil
}

// release gives the room of a transaction back. Its caller has the mutex.
func (p *pool) release(taken *pending) {
	p.count--
	p.bytes -= len(taken.transaction)
}

// forget lets a transaction come again.
func (p *pool) forget(hash transactionHash) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.known, hash)
}

// waiting returns how many transactions are in the pool, with their bytes.
func (p *pool) waiting() (count, bytes int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.count, p.bytes
}

// batch returns the next transactions that fit into a ledger transaction.
func (p *pool) batch() (taken []*pending) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	size := 0
	for len(p.queue) > 0 && len(taken) < ledger.MaxRecords {
		if size += len(p.queue[0].transaction); size > batchBytes {
			break
		}
		taken = append(taken, p.queue[0])
		p.queue[0] = nil
		p.queue = p.queue[1:]
	}
	return taken
}

// run posts what clients posted until the context ends, and then waits for the outcomes.
func (p *pool) run(ctx context.Context) {
	slots := make(chan struct{}, batchesMax)
	defer p.end()
	for {
		taken := p.batch()
		if len(taken) == 0 {
			select {
			case <-p.ready:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			p.failAll(taken, errStopped)
			return
		}
		p.propose(ctx, taken, func() { <-slots })
	}
}

// end lets nothing in any more, and waits for what is under way.
func (p *pool) end() {
	p.mutex.Lock()
	p.closed = true
	left := p.queue
	p.queue = nil
	p.mutex.Unlock()
	p.failAll(left, errStopped)
	p.outcomes.Wait()
}

// failAll ends transactions that do not get into the application's chain, or may not.
func (p *pool) failAll(taken []*pending, err error) {
	for _, each := range taken {
		each.fail(err)
		if each.leave != nil {
			each.leave()
		}
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, each := range taken {
		p.release(each)
		delete(p.known, each.hash)
	}
}

// propose has the application prepare a batch, and posts what it made of it. Done is called once
// the outcome is known.
func (p *pool) propose(ctx context.Context, taken []*pending, done func()) {
	request := &prepareRequest{maxBytes: batchBytes, time: time.Now().UTC()}
	for _, each := range taken {
		request.transactions = append(request.transactions, each.transaction)
	}
	var proposed [][]byte
	for {
		request.height = p.results.head() + 1
		bounded, cancel := context.WithTimeout(ctx, p.prepareTime)
		var err error
		proposed, err = p.application.prepare(bounded, request)
		cancel()
		if err == nil {
			break
		}
		if !pause(ctx, preparePause) { // the follower reports that the application is away
			p.failAll(taken, errStopped)
			done()
			return
		}
	}
	transaction, err := p.transaction(proposed)
	if err != nil {
		p.failAll(taken, err)
		done()
		return
	}
	taken = p.match(taken, proposed)
	if len(proposed) == 0 {
		done()
		return
	}
	outcome, err := p.post(ctx, transaction)
	if err != nil {
		p.failAll(taken, err)
		done()
		return
	}
	p.outcomes.Go(func() {
		defer done()
		answer, err := outcome(context.WithoutCancel(ctx)) // bounded by the sender's patience
		switch {
		case errors.Is(err, client.ErrOutcomeUnknown):
			err = fmt.Errorf("it may still be ordered: %w", err)
		case err == nil && !answer.Applied():
			err = fmt.Errorf("the ledger did not take the transaction: %s (%s)",
				answer.Status.GetReason(), answer.Status.GetReasonCode())
		case err == nil && ledger.ShardID(answer.Status.GetShard()) != p.shard:
			err = fmt.Errorf("the ledger has the transaction in shard %d, where %s lives, and the "+
				"application follows shard %d: post as an organisation of that shard",
				answer.Status.GetShard(), p.organisation, p.shard)
		}
		if err != nil {
			p.failAll(taken, err)
			return
		}
		p.mutex.Lock()
		defer p.mutex.Unlock()
		for _, each := range taken {
			p.release(each)
		}
	})
}

// transaction makes the ledger transaction of a proposal.
func (p *pool) transaction(proposed [][]byte) (ledger.Transaction, error) {
	var transaction ledger.Transaction
	size := 0
	for i, each := range proposed {
		size += len(each)
		if i == ledger.MaxRecords || size > batchBytes || len(each) > ledger.MaxRecordValue ||
			len(each) == 0 {
			return transaction, fmt.Errorf("the application made a proposal that the ledger "+
				"cannot carry: at most %d transactions of 1 to %d bytes, with %d bytes "+
				"together, are possible", ledger.MaxRecords, ledger.MaxRecordValue, batchBytes)
		}
		transaction.Records = append(transaction.Records, ledger.Record{
			Key: transactionKey(p.organisation, p.chain, i), Value: each})
	}
	return transaction, nil
}

// match finds out under which hash each transaction gets into a block, since an application may
// change them in its proposal. Those that are in it as they were are easy. If as many others are
// left on both sides, they belong together in their order. Otherwise the application left them out.
// It returns those that are in the proposal.
func (p *pool) match(taken []*pending, proposed [][]byte) (matched []*pending) {
	unclaimed := make(map[transactionHash]int)
	for _, each := range proposed {
		unclaimed[sha256.Sum256(each)]++
	}
	var changed []*pending
	for _, each := range taken {
		if unclaimed[each.hash] == 0 {
			changed = append(changed, each)
			continue
		}
		unclaimed[each.hash]--
		p.begin(each, each.hash)
		matched = append(matched, each)
	}
	var others []transactionHash
	for _, each := range proposed {
		if hash := transactionHash(sha256.Sum256(each)); unclaimed[hash] > 0 {
			unclaimed[hash]--
			others = append(others, hash)
		}
	}
	if len(others) != len(changed) {
		p.failAll(changed, errors.New("the application left the transaction out of its proposal "+
			"(PrepareProposal)"))
		return matched
	}
	for i, each := range changed {
		p.begin(each, others[i])
		matched = append(matched, each)
	}
	return matched
}

// begin tells those that wait for a transaction where it will be.
func (p *pool) begin(each *pending, hash transactionHash) {
	each.place, each.leave = p.results.await(hash)
	close(each.posting)
}

// await waits until a transaction is in a block, and returns its place.
func (p *pool) await(ctx context.Context, taken *pending) (place, error) {
	select {
	case <-taken.posting:
	case err := <-taken.failed:
		return place{}, err
	case <-ctx.Done():
		return place{}, ctx.Err()
	}
	select {
	case at := <-taken.place:
		return at, nil
	case err := <-taken.failed:
		return place{}, err
	case <-ctx.Done():
		return place{}, ctx.Err()
	}
}
