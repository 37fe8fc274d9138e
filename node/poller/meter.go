package poller

import (
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// meter is a host that counts what a machine posts on it.
type meter struct {
	rdmanet.RegionHost
	writes, written, reads, read atomic.Uint64
}

// Queue returns a queue that counts.
func (m *meter) Queue(depth int) (rdmanet.Queue, error) {
	queue, err := m.RegionHost.Queue(depth)
	if err != nil {
		return nil, err
	}
	return &meteredQueue{Queue: queue, meter: m}, nil
}

type meteredQueue struct {
	rdmanet.Queue
	meter *meter
}

// Post counts the operations that the queue takes, without what the fabric adds to them.
func (q *meteredQueue) Post(operations ...rdmanet.Operation) error {
	if err := q.Queue.Post(operations...); err != nil {
		return err
	}
	for i := range operations {
		bytes := uint64(len(operations[i].Bytes))
		switch operations[i].Kind {
		case rdmanet.OperationWrite:
			q.meter.writes.Add(1)
			q.meter.written.Add(bytes)
		case rdmanet.OperationRead:
			q.meter.reads.Add(1)
			q.meter.read.Add(bytes)
		}
	}
	return nil
}
