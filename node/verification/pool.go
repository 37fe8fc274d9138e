package verification

import (
	"container/list"
	"runtime"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// Bounds of a pool.
const (
	// heldBytesMax bounds the bytes of the batches whose results are held.
	heldBytesMax = 64 << 20
	// heldMax bounds their number.
	heldMax = 4096
	// queueMax is how many batches may wait for a worker.
	queueMax = 256
)

// Message identifies a message: that of a member, in a round of an epoch of a run. A message may
// arrive in several copies, of which a round takes the first.
type Message struct{ Run, Epoch, Round, Origin uint64 }

// Pool holds results of batches. It is safe for concurrent use.
type Pool struct {
	queue   chan *task
	workers sync.WaitGroup

	mu   sync.Mutex
	held map[*byte]*task // by the first byte of the batch
	// messages are the messages of held that arrived.
	messages map[Message]*task
	order    list.List // of held, oldest first; values are *task
	bytes    int
	done     bool
}

// task is the verification of one batch.
type task struct {
	data   []byte
	begin  sync.Once
	result *ledger.VerifiedBatch // nil if the batch cannot be decoded
	place  *list.Element         // in Pool.order
	// message is the zero value for a batch that a round brought.
	message Message
}

// verify verifies the batch, unless that was done before. It waits for another caller that is at
// it.
func (t *task) verify() *ledger.VerifiedBatch {
	t.begin.Do(func() { t.result, _ = ledger.VerifyBatch(t.data) })
	return t.result
}

// New makes a pool and starts its workers.
func New() *Pool {
	p := &Pool{queue: make(chan *task, queueMax), held: make(map[*byte]*task),
		messages: make(map[Message]*task)}
	for range runtime.GOMAXPROCS(0) {
		p.workers.Go(func() {
			for t := range p.queue {
				t.verify()
			}
		})
	}
	return p
}

// Close ends the workers. The other methods stay usable; they verify at once.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.done {
		p.done = true
		close(p.queue)
	}
	p.mu.Unlock()
	p.workers.Wait()
}

// Arrived says that a message's batch arrived, and that a round may need it soon. The pool keeps
// the batch, which must not change any more. It ignores other copies of a message. Arrived returns
// at once.
func (p *Pool) Arrived(message Message, batch []byte) {
	if len(batch) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.held[&batch[0]] != nil || p.messages[message] != nil {
		return
	}
	t := p.hold(batch)
	t.message = message
	p.messages[message] = t
	select {
	case p.queue <- t:
	default: // its round verifies it
	}
}

// hold makes the task of a batch. The caller must hold the mutex.
func (p *Pool) hold(batch []byte) *task {
	if old := p.held[&batch[0]]; old != nil {
		p.drop(old)
	}
	t := &task{data: batch}
	t.place = p.order.PushBack(t)
	p.held[&batch[0]] = t
	p.bytes += len(batch)
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
	p.bytes -= len(t.data)
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
			if !p.done {
				select {
				case p.queue <- t: // beside the caller, which begins with the first one
				default:
				}
			}
		}
		tasks = append(tasks, t)
	}
	p.mu.Unlock()
	verified := make([]*ledger.VerifiedBatch, len(tasks))
	for i, t := range tasks {
		verified[i] = t.verify()
	}
	return verified
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
