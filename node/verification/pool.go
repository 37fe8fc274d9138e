package verification

import (
	"container/list"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Bounds of a pool.
const (
	// heldBytesMax bounds the memory of the batches whose results are held: their bytes, and what
	// packed transfers take once they are decoded.
	heldBytesMax = 256 << 20
	// heldMax bounds their number.
	heldMax = 4096
	// queueMax is how many batches that one sender delivered may wait for a worker.
	queueMax = 128
)

// Bounds of what a sender may waste: verifications of messages that no round took.
const (
	// wasteMax is how much a sender may waste at once. A loaded shard has about this much under way
	// at a time, which its rounds take a moment later.
	wasteMax = 2 * time.Second
	// wasteShare is the divisor of time that gives what a sender may waste for good: a tenth of a
	// processor.
	wasteShare = 10
)

// Message identifies a message: that of a member, in a round of an epoch of a run. A message may
// arrive in several copies, of which a round takes the first.
type Message struct{ Run, Epoch, Round, Origin uint64 }

// Pool holds results of batches. It is safe for concurrent use.
type Pool struct {
	workers sync.WaitGroup
	now     func() time.Time

	mu   sync.Mutex
	work sync.Cond       // there is a task for a worker, or the pool closes
	held map[*byte]*task // by the first byte of the batch
	// messages are the messages of held that arrived.
	messages map[Message]*task
	order    list.List // of held, oldest first; values are *task
	bytes    int
	// needed are the tasks that a round waits for. They come first.
	needed  []*task
	senders map[uint64]*sender
	find    func(encoded []byte) *ledger.Bundle // nil if nothing is found
	done    bool
}

// task is the verification of one batch.
type task struct {
	data   []byte
	find   func(encoded []byte) *ledger.Bundle
	begin  sync.Once
	result *ledger.VerifiedBatch // nil if the batch cannot be decoded
	place  *list.Element         // in Pool.order
	// message is the zero value for a batch that a round brought, and from is then nil.
	message Message
	from    *sender
	// cost is what a worker spent on it before a round took it, and taken says that one did. Both
	// are guarded by Pool.mu.
	cost  time.Duration
	taken bool
	// bytes is what the task counts for in Pool.bytes.
	bytes int
}

// sender is a member whose lane delivers messages, its own and those that it relays.
type sender struct {
	queue []*task
	// wasted is the time spent on its messages that no round took, as of the time at. What a round
	// may still take is part of it.
	wasted time.Duration
	at     time.Time
	// distrusted is the time until which nothing that it delivers is verified before a round needs
	// it.
	distrusted time.Time
}

// pay reduces what a sender wasted by its share of the time that has passed.
func (s *sender) pay(now time.Time) {
	s.wasted = max(0, s.wasted-now.Sub(s.at)/wasteShare)
	s.at = now
}

// verify verifies the batch, unless that was done before. It waits for another caller that is at
// it.
func (t *task) verify() *ledger.VerifiedBatch {
	t.begin.Do(func() { t.result, _ = ledger.VerifyBatchWith(t.data, t.find) })
	return t.result
}

// unqueue takes a task out of the queue, and reports whether it was there.
func (s *sender) unqueue(t *task) bool {
	at := slices.Index(s.queue, t)
	if at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	return at >= 0
}

// New makes a pool and starts its workers.
func New() *Pool { return newPool(time.Now, runtime.GOMAXPROCS(0)) }

func newPool(now func() time.Time, workers int) *Pool {
	p := &Pool{now: now, held: make(map[*byte]*task), messages: make(map[Message]*task),
		senders: make(map[uint64]*sender)}
	p.work.L = &p.mu
	for range workers {
		p.workers.Go(p.run)
	}
	return p
}

// run is a worker.
func (p *Pool) run() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		t := p.next()
		for ; t == nil; t = p.next() {
			if p.done {
				return
			}
			p.work.Wait()
		}
		p.mu.Unlock()
		began := p.now()
		t.verify()
		now := p.now()
		p.mu.Lock()
		p.spent(t, now, now.Sub(began))
	}
}

// spent charges a verification to the sender of its message, until a round takes it. The caller
// must hold the mutex.
func (p *Pool) spent(t *task, now time.Time, cost time.Duration) {
	if s := t.from; s != nil && !t.taken {
		t.cost = cost
		s.pay(now)
		s.wasted += cost
	}
}

// next takes the task that a worker does next: one that a round needs, or else one of the sender
// that wasted least. The caller must hold the mutex.
func (p *Pool) next() *task {
	if len(p.needed) > 0 {
		t := p.needed[0]
		p.needed = p.needed[1:]
		return t
	}
	var least *sender
	for _, s := range p.senders {
		if s.wasted > wasteMax {
			s.queue = nil // its rounds verify them
		}
		if len(s.queue) > 0 && (least == nil || s.wasted < least.wasted) {
			least = s
		}
	}
	if least == nil {
		return nil
	}
	t := least.queue[0]
	least.queue = least.queue[1:]
	return t
}

// Close ends the workers. The other methods stay usable; they verify at once.
func (p *Pool) Close() {
	p.mu.Lock()
	p.done, p.needed = true, nil
	for _, s := range p.senders {
		s.queue = nil
	}
	p.work.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

// FindWith gives the pool the bundles that this node has decoded already, because it admitted them.
// They are not decoded again. find returns the bundle with an encoding, or nil; see
// ledger.VerifyBatchWith. It must be quick, safe for concurrent use, and must not call the pool.
func (p *Pool) FindWith(find func(encoded []byte) *ledger.Bundle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.find = find
}

// Arrived says that a message's batch arrived over the lane of a sender, and that a round may need
// it soon. The pool keeps the batch, which must not change any more. It ignores other copies of a
// message, and messages of a sender that wasted too much. Arrived returns at once.
func (p *Pool) Arrived(from uint64, message Message, batch []byte) {
	if len(batch) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.held[&batch[0]] != nil || p.messages[message] != nil {
		return
	}
	now := p.now()
	s := p.sender(from, now)
	if s.pay(now); s.wasted > wasteMax || len(s.queue) >= queueMax || now.Before(s.distrusted) {
		return // its round verifies it
	}
	t := p.hold(batch)
	t.message, t.from = message, s
	p.messages[message] = t
	s.queue = append(s.queue, t)
	p.work.Signal()
}

// Distrust makes a sender that forged wait: nothing that it delivers is verified before a round
// needs it.
func (p *Pool) Distrust(from uint64, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sender(from, p.now()).distrusted = until
}

// sender returns what the pool knows of a sender. The caller must hold the mutex. Senders are
// members of the shard, so there are few.
func (p *Pool) sender(from uint64, now time.Time) *sender {
	s := p.senders[from]
	if s == nil {
		s = &sender{at: now}
		p.senders[from] = s
	}
	return s
}

// hold makes the task of a batch. The caller must hold the mutex.
func (p *Pool) hold(batch []byte) *task {
	if old := p.held[&batch[0]]; old != nil {
		p.drop(old)
	}
	t := &task{data: batch, find: p.find, bytes: len(batch) + ledger.PackedBatchMemory(batch)}
	t.place = p.order.PushBack(t)
	p.held[&batch[0]] = t
	p.bytes += t.bytes
	for len(p.held) > heldMax || p.bytes > heldBytesMax && len(p.held) > 1 {
		p.drop(p.order.Front().Value.(*task))
	}
	return t
}

// drop forgets a task. The caller must hold the mutex.
func (p *Pool) drop(t *task) {
	delete(p.held, &t.data[0])
	if p.messages[t.message] == t {
		delete(p.messages, t.message)
	}
	p.order.Remove(t.place)
	p.bytes -= t.bytes
	if t.from != nil {
		t.from.unqueue(t)
	}
}

// Batches verifies the batches of a round, as ledger.VerifyBatches does. The results are held until
// Forget, for another call with the same batches.
func (p *Pool) Batches(batches [][]byte) []*ledger.VerifiedBatch {
	tasks := make([]*task, 0, len(batches))
	p.mu.Lock()
	for _, batch := range batches {
		if len(batch) == 0 {
			continue
		}
		t := p.held[&batch[0]]
		if t == nil || len(t.data) != len(batch) {
			t = p.hold(batch)
			p.need(t)
		}
		p.take(t)
		tasks = append(tasks, t)
	}
	p.mu.Unlock()
	verified := make([]*ledger.VerifiedBatch, len(tasks))
	for i, t := range tasks {
		verified[i] = t.verify()
	}
	return verified
}

// need has a worker verify a batch beside the caller of Batches, which begins with the first one.
// The caller must hold the mutex.
func (p *Pool) need(t *task) {
	if !p.done {
		p.needed = append(p.needed, t)
		p.work.Signal()
	}
}

// take marks a batch that a round needs, and gives the time that was spent on it back to its
// sender. The caller must hold the mutex.
func (p *Pool) take(t *task) {
	if s := t.from; s != nil && !t.taken {
		s.pay(p.now())
		s.wasted = max(0, s.wasted-t.cost)
		if s.unqueue(t) {
			p.need(t)
		}
	}
	t.taken = true
}

// Forget drops the results of batches whose round is over.
func (p *Pool) Forget(batches [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, batch := range batches {
		if len(batch) == 0 {
			continue
		}
		if t := p.held[&batch[0]]; t != nil {
			p.drop(t)
		}
	}
}
