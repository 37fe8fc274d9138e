package abci

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
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

// pending is a transaction that a client posted. The pool's mutex is for its fields.
type pending struct {
	transaction []byte
	hash        transactionHash
	// under is the hash under which it gets into a block, once it is about to be posted. Height is
	// that of the block, once the ledger has said it.
	under  transactionHash
	height int64
	ended  bool
	end    chan ended // gets how it ended
}

// ended is how a pending transaction ended: in a block, or with the reason why it will not get into
// one, or why that is not known.
type ended struct {
	place place
	err   error
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

	mutex sync.Mutex
	queue []*pending
	// count has those that are being checked, queued, or posted and not executed.
	count  int
	bytes  int
	known  map[transactionHash]uint64 // the number in order
	order  []transactionHash          // from number first on
	first  uint64
	closed bool
	// posted are by the hash under which they get into a block. Head is the application's height.
	posted map[transactionHash][]*pending
	head   int64
}

func newPool(options *Options, application *application, results *results) *pool {
	return &pool{config: options.Config.Pool,
		prepareTime: time.Duration(options.Config.Timing.Check),
		chain:       options.Config.Genesis.Chain,
		shard:       options.Config.Shard, organisation: options.Config.Post,
		application: application, results: results, post: options.Post,
		ready: make(chan struct{}, 1), known: make(map[transactionHash]uint64),
		posted: make(map[transactionHash][]*pending)}
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
		end: make(chan ended, 1)}
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
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, each := range taken {
		if !each.ended {
			delete(p.known, each.hash)
		}
		p.finish(each, ended{err: err})
	}
}

// finish ends a transaction, unless it has ended. Its caller has the mutex.
func (p *pool) finish(each *pending, how ended) {
	if each.ended {
		return
	}
	each.ended = true
	each.end <- how // it has room for one
	p.release(each)
	others := slices.DeleteFunc(p.posted[each.under], func(other *pending) bool {
		return other == each
	})
	if p.posted[each.under] = others; len(others) == 0 {
		delete(p.posted, each.under)
	}
}

// executed ends what the application has executed in a block, or left out of it.
func (p *pool) executed(b *block, left []leftOut) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.head = b.height
	for i, transaction := range b.transactions {
		p.tell(sha256.Sum256(transaction), place{b, i})
		if b.results[i].Code != 0 {
			delete(p.known, sha256.Sum256(transaction))
		}
	}
	for _, each := range left {
		p.tell(sha256.Sum256(each.transaction), place{b, int(each.why)})
		delete(p.known, sha256.Sum256(each.transaction))
	}
}

// tell ends what waits for a place in a block. Its caller has the mutex.
func (p *pool) tell(hash transactionHash, at place) {
	for _, each := range slices.Clone(p.posted[hash]) {
		p.finish(each, ended{place: at})
	}
}

// skipped ends what is in blocks up to a height that the application executed, and that the adapter
// did not see the results of.
func (p *pool) skipped(height int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.head = height
	for _, waiting := range p.posted {
		for _, each := range slices.Clone(waiting) {
			p.missed(each)
		}
	}
}

// missed ends a transaction if it is in a block that was executed, and it was not told so. Its
// caller has the mutex.
func (p *pool) missed(each *pending) {
	if each.height > 0 && each.height <= p.head {
		p.finish(each, ended{err: fmt.Errorf("the application has executed block %d with the "+
			"transaction, and its result is not known", each.height)})
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
			each.height = int64(answer.Height)
			p.missed(each)
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

// begin is called before a transaction is posted, with the hash under which it gets into a block.
func (p *pool) begin(each *pending, hash transactionHash) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	each.under = hash
	p.posted[hash] = append(p.posted[hash], each)
}

// await waits until a transaction is in a block, and returns its place.
func (p *pool) await(ctx context.Context, taken *pending) (place, error) {
	select {
	case how := <-taken.end:
		return how.place, how.err
	case <-ctx.Done():
		return place{}, ctx.Err()
	}
}
