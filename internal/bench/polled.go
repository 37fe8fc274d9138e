package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/poller"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// timeoutMemory is how long a leader may be silent where all servers are in this process.
const timeoutMemory = 500 * time.Microsecond

// polled is an engine over one-sided memory, behind the production poller.
type polled struct {
	host     *countedHost
	machine  engine.Machine
	poller   *poller.Poller
	workload *workload
	ended    chan struct{} // closed to end the goroutine that waits for batches
	watching sync.WaitGroup
	failed   func(reason string)
	// heard, if set, hears of deliveries before the workload.
	heard func([]order.Delivery)
}

// newPolled makes a polled engine. Its memory is there when newPolled returns; attachments wait for
// that of the others.
func (s *server) newPolled(p Parameters, made engine.Engine, config engine.Config,
	peers []rdmanet.Peer) (ordering, error) {
	regions, are := s.host.(rdmanet.RegionHost)
	if !are {
		return nil, fmt.Errorf("%w: %s has no one-sided memory, which %s needs", ErrParameters,
			p.Fabric, p.Engine)
	}
	o := &polled{host: &countedHost{RegionHost: regions}, workload: s.workload,
		ended: make(chan struct{}), failed: func(reason string) { s.halted.Store(&reason) }}
	yields := poller.YieldsDefault
	if p.Fabric == fabric.Memory {
		config.Timeout, yields = timeoutMemory, yieldsMemory
	}
	var err error
	if o.machine, err = made.NewMachine(config, peers, o.host); err != nil {
		return nil, err
	}
	batch := p.payload()
	o.poller = poller.New(poller.Config{Host: o.host, Machine: o.machine, Yields: yields,
		Feed: func() bool { return o.feed(batch) }, Drain: o.drain})
	return o, nil
}

func (o *polled) start() error {
	o.poller.Start()
	o.watching.Go(func() {
		for {
			select {
			case <-o.workload.Ready():
				o.poller.Ring()
			case <-o.ended:
				return
			}
		}
	})
	return nil
}

// feed gives the engine the next batches of the workload.
func (o *polled) feed(maxBytes int) (some bool) {
	for o.machine.CanBroadcast() {
		batch := o.workload.Next(maxBytes)
		if batch == nil {
			return some
		}
		if err := o.machine.Broadcast(batch); err != nil {
			o.failed(err.Error())
			return some
		}
		some = true
	}
	return some
}

// drain passes deliveries on.
func (o *polled) drain() bool {
	deliveries := o.machine.Deliveries()
	if len(deliveries) == 0 {
		if halted := o.machine.Halted(); halted != "" {
			o.failed(halted)
		}
		return false
	}
	if o.heard != nil {
		o.heard(deliveries)
	}
	if err := o.workload.Deliver(context.Background(), deliveries); err != nil {
		o.failed(err.Error())
	}
	return true
}

func (o *polled) freeze() { o.poller.Stop() }

func (o *polled) sent() (bytes, pieces uint64) {
	return o.host.bytes.Load(), o.host.operations.Load()
}

func (o *polled) close() error {
	o.poller.Stop()
	close(o.ended)
	o.watching.Wait()
	if err := o.machine.Close(); err != nil {
		return fmt.Errorf("bench: close: %w", err)
	}
	return nil
}

// countedHost counts the operations on other hosts' memory, and their bytes.
type countedHost struct {
	rdmanet.RegionHost
	bytes, operations atomic.Uint64
}

func (h *countedHost) Queue(depth int) (rdmanet.Queue, error) {
	queue, err := h.RegionHost.Queue(depth)
	if err != nil {
		return nil, err
	}
	return countedQueue{queue, h}, nil
}

type countedQueue struct {
	rdmanet.Queue
	host *countedHost
}

func (q countedQueue) Post(operations ...rdmanet.Operation) error {
	bytes := 0
	for _, each := range operations {
		bytes += len(each.Bytes)
	}
	q.host.bytes.Add(uint64(bytes))
	q.host.operations.Add(uint64(len(operations)))
	return q.Queue.Post(operations...)
}
