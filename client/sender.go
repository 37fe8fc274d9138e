package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Errors of a Sender. Match them with errors.Is. After any of them the transaction has not been
// sent, and never will be.
var (
	// ErrFull means that the Sender holds as much as it may (SenderOptions.MaxBytes).
	ErrFull = errors.New("client: too many transactions wait for the nodes")
	// ErrSenderClosed means that the Sender was closed.
	ErrSenderClosed = errors.New("client: the sender is closed")
	// ErrNotSent means that the transaction was not sent: its caller's context ended first, or the
	// outcome of an earlier transaction of the same Caller is not known.
	ErrNotSent = errors.New("client: the transaction was not sent")
)

// SenderOptions are the options of a Sender. The zero value of each field except Keys means its
// default.
type SenderOptions struct {
	// Keys sign every bundle. The first one is that of the transactions' signer.
	Keys []Key
	// Level is what callers wait for: ordered, stored or durable; default durable.
	Level ledgerdv1.Level
	// InFlight is how many bundles may be under way at once, 1 to 64; default 4. Each uses a nonce
	// stream of its own. In a book of several shards that is for each shard where bundles enter.
	InFlight int
	// MaxBundle is how many transactions a bundle may have; default ledger.MaxBundleTransactions,
	// which is also the most.
	MaxBundle int
	// MaxBytes bounds what the Sender holds, waiting and under way: the bytes of the transactions,
	// with 1 KiB for each; default 128 MiB. It is at least 1 MiB.
	MaxBytes int
	// RefuseWhenFull makes the Sender refuse with ErrFull what MaxBytes has no room for. By default
	// the callers wait for room.
	RefuseWhenFull bool
	// Patience is how long the Sender tries to bring a bundle to its level; default 1 min. After
	// that its callers get ErrOutcomeUnknown if a node may have taken the bundle, and else the last
	// reason why none did.
	Patience time.Duration
}

// Bounds of SenderOptions.
const (
	maxInFlight   = 64
	leastMaxBytes = 1 << 20
	heldBytes     = 1 << 10 // what a transaction takes besides its encoding, about
)

// check validates the options and sets defaults.
func (o *SenderOptions) check() error {
	if len(o.Keys) == 0 {
		return errors.New("client: a sender needs a signer's key")
	}
	switch o.Level {
	case ledgerdv1.Level_LEVEL_UNSPECIFIED:
		o.Level = ledgerdv1.Level_LEVEL_DURABLE
	case ledgerdv1.Level_LEVEL_ORDERED, ledgerdv1.Level_LEVEL_STORED,
		ledgerdv1.Level_LEVEL_DURABLE:
	default:
		return fmt.Errorf("client: a sender cannot wait for level %v: its callers' order is only "+
			"sure once a transaction is ordered", o.Level)
	}
	byDefault := func(value *int, otherwise int) {
		if *value == 0 {
			*value = otherwise
		}
	}
	byDefault(&o.InFlight, 4)
	byDefault(&o.MaxBundle, ledger.MaxBundleTransactions)
	byDefault(&o.MaxBytes, 128<<20)
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	switch {
	case o.InFlight < 1 || o.InFlight > maxInFlight:
		return fmt.Errorf("client: %d bundles in flight, want 1 to %d", o.InFlight, maxInFlight)
	case o.MaxBundle < 1 || o.MaxBundle > ledger.MaxBundleTransactions:
		return fmt.Errorf("client: bundles of %d transactions, want 1 to %d", o.MaxBundle,
			ledger.MaxBundleTransactions)
	case o.MaxBytes < leastMaxBytes:
		return fmt.Errorf("client: %d bytes for a sender, want at least %d", o.MaxBytes,
			leastMaxBytes)
	case o.Patience < 0:
		return fmt.Errorf("client: a patience of %v", o.Patience)
	}
	return nil
}

// Answer is what a caller gets for its transaction.
type Answer struct {
	// ID is the transaction's id, or zero if it was never signed.
	ID ledger.Hash
	// Height is that of its block, 0 if it is in none.
	Height ledger.Height
	// Status is the outcome as a node reported it: a state, and a reason if the transaction failed.
	// It is nil with an error.
	Status *ledgerdv1.TransactionStatus
}

// Applied reports whether the transaction took effect.
func (a Answer) Applied() bool { return tookEffect(a.Status.GetState()) }

// tookEffect reports whether a transaction in this state was applied.
func tookEffect(state ledgerdv1.TransactionState) bool {
	switch state {
	case ledgerdv1.TransactionState_TRANSACTION_STATE_ORDERED,
		ledgerdv1.TransactionState_TRANSACTION_STATE_STORED,
		ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE:
		return true
	}
	return false
}

// Sender submits the transactions of many concurrent callers. It signs and sends everything that
// waits as one bundle, keeps a few bundles in flight, and waits for each as a whole. There is no
// timer: it sends when it may, so a lone transaction leaves at once, and bundles grow with the
// load.
//
//   - All transactions of a bundle are signed with the same keys, so every caller of a Sender may
//     do what those keys may do. Callers that may do less need another Sender.
//   - A transaction that was sent once never changes: the Sender sends the same bytes again until
//     the outcome is known, here or at another node. If an answer is lost, it asks for the outcome
//     first. It takes another nonce only if the ledger reported that the first was stale and the
//     transaction changed nothing.
//   - If a node refuses a bundle because of one transaction, the others go on without it. So they
//     do if all nodes that can take it refuse it because of another shard, which is down or full.
//     The callers whose transactions cross to it get the Failure, whose Reason is set.
//   - Transactions of one Caller take effect in the order of their submission. The order of all
//     others is open.
//   - What the Sender holds is bounded (SenderOptions.MaxBytes).
//   - Its bundles share one stream to a node (SubmitStream). Where none can be opened, because the
//     node is older or the way to it is not HTTP/2, it makes a call for each bundle, and tries
//     again after a minute.
//   - All callers of a bundle get their answers together. In a book of several shards a bundle
//     enters the tree of shards where its transactions together do, and waits for all shards that
//     they concern. So transactions share a bundle only if they enter at the same shard, as far as
//     the Sender knows where organisations live, which it learns from outcomes. Those of one Caller
//     that wait, or are under way, stay together.
//
// A Sender is safe for concurrent use. Its goroutines end with Close.
type Sender struct {
	nodes   *Client
	options SenderOptions
	genesis ledger.Hash
	ctx     context.Context // ends when Close gives up
	cancel  context.CancelFunc
	at      []node // as the lanes submit to them
	working sync.WaitGroup
	reading sync.WaitGroup // the streams

	homes homes

	mutex   sync.Mutex
	queues  []*queue // the first has what enters at a shard that is not known
	blocked list     // for which there is no room yet, oldest first
	held    int      // bytes, of everything but blocked
	closed  bool
}

// queue has the transactions that enter the tree of shards at one shard, and lanes that carry them.
// In a book of one shard there is one queue. The sender's mutex guards it.
type queue struct {
	sender    *Sender
	entry     ledger.ShardID
	wake      sync.Cond // a lane may take a bundle, or the Sender is closed
	waiting   list      // to be sent, oldest first
	flights   int       // bundles under way
	slow      int       // of these, those that take longer than a call
	flying    int       // transactions in bundles under way that are not slow
	gathering bool      // a lane is about to take a bundle
}

// Caller submits transactions that take effect in the order of their submission, such as those of
// one user. At most one bundle with its transactions is in flight at a time; the bundle takes all
// that wait. If the outcome of a transaction cannot be found out, those that wait behind it then
// are not sent (ErrNotSent). A Caller is safe for concurrent use and needs no Close.
type Caller struct {
	sender *Sender
	// Guarded by the sender's mutex.
	flying bool // in a bundle under way
	unsure bool // an outcome of that bundle is not known
	held   list // those that wait for the flight, oldest first
	queue  *queue
	queued int // transactions that are not over, all of them in the queue
}

// Submission is a transaction that a Sender took.
type Submission struct {
	sender      *Sender
	queue       *queue
	caller      *Caller // nil: any order
	transaction ledger.Transaction
	bytes       int           // bound of the encoding
	done        chan struct{} // gets one element with the outcome
	room        chan struct{} // closed when it leaves the blocked; nil if it never was there

	// Guarded by the sender's mutex.
	at             *list // nil: under way, or over
	before, behind *Submission
	over, left     bool // left: nobody waits for it

	// Of the lane that carries it, until done has an element.
	stale   int  // how many of its nonces were
	decided bool // it has an answer or an error
	answer  Answer
	err     error
}

// submissions keeps those of Post for the next call.
var submissions = sync.Pool{New: func() any {
	return &Submission{done: make(chan struct{}, 1)}
}}

// NewSender makes a Sender on the client's nodes, which it asks for the ledger's identity. The
// Sender moves the client to another node if one is lost. Close the Sender before the Client.
func (c *Client) NewSender(ctx context.Context, options SenderOptions) (*Sender, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	genesis, err := c.Genesis(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sender{nodes: c, options: options, genesis: genesis}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.at = make([]node, len(c.urls))
	for i := range s.at {
		s.at[i].client, s.at[i].at = c, uint32(i)
		s.at[i].life, s.at[i].reading = s.ctx, &s.reading
	}
	s.addQueue(0)
	return s, nil
}

// Caller returns a new caller, whose transactions keep their order.
func (s *Sender) Caller() *Caller { return &Caller{sender: s} }

// Post submits a transaction, whose ledger, signer and nonce the Sender sets, and waits for its
// outcome. The caller must not change what the transaction refers to until Post returns. If it
// returns because the context ended, that is until the transaction is over.
//
// A transaction that failed is no error here: see Answer.Status. With ErrOutcomeUnknown the
// transaction may be under way: its context ended, or no node that knows it answered in time. The
// answer's id is then set if the transaction was signed. All other errors mean that it has changed
// nothing and is not under way.
func (s *Sender) Post(ctx context.Context, transaction ledger.Transaction) (Answer, error) {
	return s.post(ctx, nil, &transaction)
}

// Post is Sender.Post, after all transactions that were submitted before.
func (c *Caller) Post(ctx context.Context, transaction ledger.Transaction) (Answer, error) {
	return c.sender.post(ctx, c, &transaction)
}

// PostProven is Post, and then fetches the proof that the transaction is in its block, with its
// outcome; see Client.VerifiedProof. If the proof fails, the answer still holds.
func (s *Sender) PostProven(ctx context.Context, transaction ledger.Transaction) (Answer,
	*ledger.Proof, error) {
	answer, err := s.Post(ctx, transaction)
	if err != nil || answer.Height == 0 {
		return answer, nil, err
	}
	proof, err := s.nodes.VerifiedProof(ctx, answer.ID)
	return answer, proof, err
}

// Begin submits a transaction as Post does, and returns as soon as the Sender has taken it. The
// context bounds only how long Begin waits for room.
func (c *Caller) Begin(ctx context.Context, transaction ledger.Transaction) (*Submission, error) {
	taken := &Submission{done: make(chan struct{}, 1)}
	if err := c.sender.enter(c, taken, &transaction); err != nil {
		return nil, err
	}
	if err := taken.awaitRoom(ctx); err != nil {
		return nil, err
	}
	return taken, nil
}

// Wait waits for the outcome; see Sender.Post. If the context ends first, the transaction stays
// under way, and Wait may be called again.
func (t *Submission) Wait(ctx context.Context) (Answer, error) {
	select {
	case <-t.done:
		t.done <- struct{}{} // for the next call
		return t.answer, t.err
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("%w: it is under way: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

func (s *Sender) post(ctx context.Context, caller *Caller,
	transaction *ledger.Transaction) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	mine := submissions.Get().(*Submission)
	if err := s.enter(caller, mine, transaction); err != nil {
		return Answer{}, err
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		if err := mine.leave(ctx.Err()); err != nil {
			return Answer{}, err
		}
		<-mine.done
	}
	answer, err := mine.answer, mine.err
	*mine = Submission{done: mine.done}
	submissions.Put(mine)
	return answer, err
}

// enter validates a transaction and queues it.
func (s *Sender) enter(caller *Caller, mine *Submission, transaction *ledger.Transaction) error {
	if transaction.Change != nil || transaction.Policy != nil || transaction.Charter != nil ||
		transaction.Book != nil {
		return fmt.Errorf("%w: a sender takes no changes of members, policies, the charter and "+
			"shards: use Client.Post", ledger.ErrInvalidTransaction)
	}
	if transaction.Cancellation != nil {
		return fmt.Errorf("%w: a sender takes no cancellations, since others would hold them up: "+
			"use Client.Cancel", ledger.ErrInvalidTransaction)
	}
	mine.sender, mine.caller, mine.transaction = s, caller, *transaction
	mine.transaction.Ledger, mine.transaction.Signer = s.genesis, s.options.Keys[0].Organisation
	if err := mine.transaction.Validate(); err != nil {
		return err
	}
	mine.bytes = encodedBound(&mine.transaction)
	if mine.bytes > ledger.MaxTransactionBytes {
		// The bound is above the truth by some bytes for each item.
		if _, err := mine.transaction.EncodeBody(); err != nil {
			return err
		}
	}
	entry, known := s.homes.entry(&mine.transaction)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.closed:
		return ErrSenderClosed
	case s.blocked.first == nil && s.fits(mine):
		s.choose(mine, entry, known)
		s.hold(mine)
		mine.queue.signal()
		return nil
	case s.options.RefuseWhenFull:
		return fmt.Errorf("%w: %d bytes of %d are taken", ErrFull, s.held, s.options.MaxBytes)
	}
	s.choose(mine, entry, known)
	mine.room = make(chan struct{})
	s.blocked.push(mine)
	return nil
}

// awaitRoom waits until the Sender has taken a submission that had no room.
func (t *Submission) awaitRoom(ctx context.Context) error {
	if t.room == nil {
		return nil
	}
	select {
	case <-t.room:
		return nil
	case <-ctx.Done():
		return t.leaveBlocked(ctx.Err())
	}
}

// leaveBlocked takes a submission for which there was no room out of the Sender. It returns nil if
// there is room by now.
func (t *Submission) leaveBlocked(why error) error {
	t.sender.mutex.Lock()
	defer t.sender.mutex.Unlock()
	if t.at != &t.sender.blocked {
		return nil
	}
	t.at.remove(t)
	t.end()
	t.sender.gone()
	return fmt.Errorf("%w: %w", ErrNotSent, why)
}

// leave gives a submission up. It returns nil if its outcome is there by now.
func (t *Submission) leave(why error) error {
	s := t.sender
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case t.over:
		return nil
	case t.at == nil:
		t.left = true
		return fmt.Errorf("%w: it is under way: %w", ErrOutcomeUnknown, why)
	}
	if t.at != &s.blocked {
		s.held -= t.bytes + heldBytes
	}
	t.at.remove(t)
	t.end()
	s.admit()
	s.gone()
	return fmt.Errorf("%w: %w", ErrNotSent, why)
}

// Close waits until everything that was submitted is over; further submissions get ErrSenderClosed.
// If the context ends first, Close gives up: what was not sent gets ErrSenderClosed, what is under
// way gets ErrOutcomeUnknown, and Close returns the context's error. All goroutines of the Sender
// have ended when Close returns.
func (s *Sender) Close(ctx context.Context) error {
	s.mutex.Lock()
	s.closed = true
	s.wakeAll()
	s.mutex.Unlock()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.working.Wait()
		for i := range s.at {
			s.at[i].close()
		}
		s.reading.Wait()
	}()
	defer s.cancel()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	<-drained
	return fmt.Errorf("client: closing the sender: %w", ctx.Err())
}
