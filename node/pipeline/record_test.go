package pipeline_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// recording is a fixture whose records are their round numbers.
type recording struct {
	*fixture
	mutex sync.Mutex
	said  []shard.Recorded
	// encoding, if set, is called while a record is on its way to the disk.
	encoding func()
}

func newRecording(t *testing.T) *recording {
	t.Helper()
	r := &recording{}
	r.fixture = fixtureOf(t, ledgertest.Genesis(), mempool.Config{}, pipeline.Config{
		Recorded: func(_ uint64, _ []order.ServerID, rounds []shard.Recorded) {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.said = append(r.said, rounds...)
		},
		EncodeRecord: func(record *shard.Record, rounds []order.Delivery) []byte {
			if r.encoding != nil {
				r.encoding()
			}
			var bytes []byte
			for i := range rounds {
				record.Rounds = append(record.Rounds, generation.TailRound{
					Round: rounds[i].Round, Epoch: rounds[i].Epoch})
				bytes = append(bytes, byte(rounds[i].Round))
			}
			return bytes
		},
	})
	return r
}

// complete returns the next round, which is to be A-delivered later, with a transaction.
func (r *recording) complete(after order.Round) order.Delivery {
	return order.Delivery{Epoch: 1, Round: r.round + after, Messages: []order.Message{{Origin: 1,
		Payload: r.payload(0, ledger.BatchHeader{Time: 1, Tip: r.store.GenesisHash()}, r.next())}}}
}

func (r *recording) recorded(rounds ...order.Round) {
	r.t.Helper()
	r.eventually("the rounds are announced", func() bool {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		var said []order.Round
		for _, name := range r.said {
			said = append(said, name.Round)
		}
		return slices.Equal(said, rounds)
	})
}

// A complete round is on the disk before it is A-delivered. Once it is executed, its block is
// durable with the records of a majority.
func TestRecordedRoundsAreDurable(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	first, second := r.complete(1), r.complete(2)
	r.pipeline.Record([]order.Delivery{first, second})
	r.recorded(1, 2)
	if found := r.pipeline.Store().LastRecord(); string(found) != "\x01\x02" {
		t.Errorf("the record is %q", found)
	}
	if records := r.pipeline.Records(); records != 1 {
		t.Errorf("%d records", records)
	}
	r.pipeline.PeerRecorded(1, 2, []shard.Recorded{{Round: 1, Epoch: 1}, {Round: 2, Epoch: 3}})
	if heights, _ := r.pipeline.Heights(); heights != (report.Heights{}) {
		t.Errorf("before the A-delivery: %+v", heights)
	}
	if err := r.pipeline.Deliver(t.Context(), []order.Delivery{first}); err != nil {
		t.Fatal(err)
	}
	r.eventually("block 1 is durable", func() bool {
		heights, _ := r.pipeline.Heights()
		return heights.Recorded == 1 && heights.Level(1) == report.LevelDurable
	})
	if err := r.pipeline.Deliver(t.Context(), []order.Delivery{second}); err != nil {
		t.Fatal(err)
	}
	r.eventually("block 2 is stored", func() bool {
		heights, _ := r.pipeline.Heights()
		return heights.Stored == 2
	})
	if heights, _ := r.pipeline.Heights(); heights.Durable != 1 {
		t.Errorf("a record of another value counts: %+v", heights)
	}
	r.pipeline.PeerRecorded(1, 1, []shard.Recorded{{Round: 2, Epoch: 1}})
	if heights, _ := r.pipeline.Heights(); heights.Durable != 2 {
		t.Errorf("%+v", heights)
	}
	if found := r.pipeline.Store().LastRecord(); found != nil {
		t.Errorf("the chain has gone past the record %q", found)
	}
}

// A record waits until everything before it is executed. At the end of the run it is dropped.
func TestRecordsWaitForExecution(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	first, second := r.complete(1), r.complete(2)
	r.pipeline.Record([]order.Delivery{second})
	if err := r.pipeline.Sync(); err != nil {
		t.Fatal(err)
	}
	r.recorded()
	if err := r.pipeline.Deliver(t.Context(), []order.Delivery{first}); err != nil {
		t.Fatal(err)
	}
	r.recorded(2)
	r.pipeline.Record([]order.Delivery{r.complete(4)})
	if err := r.pipeline.EndRecords(); err != nil {
		t.Fatal(err)
	}
	r.round = 1
	r.deliver(r.payload(0, ledger.BatchHeader{}), r.payload(0, ledger.BatchHeader{}))
	r.barrier()
	if err := r.pipeline.Sync(); err != nil {
		t.Fatal(err)
	}
	r.recorded(2)
	// Nothing is recorded of rounds that carry too much.
	large := r.complete(1)
	large.Messages[0].Payload = make([]byte, 32<<20+1)
	r.pipeline.Record([]order.Delivery{large})
	if err := r.pipeline.Sync(); err != nil {
		t.Fatal(err)
	}
	r.recorded(2)
	// On a full disk nothing is recorded, and nothing fails.
	r.free.Store(0)
	r.pipeline.Record([]order.Delivery{r.complete(1)})
	if err := r.pipeline.Sync(); err != nil {
		t.Fatal(err)
	}
	r.recorded(2)
	if leftOut := r.pipeline.LeftOut(); leftOut != 2 {
		t.Errorf("%d records were left out", leftOut)
	}
}

// The end waits for the record that is on its way to the disk: the store has it then.
func TestEndOfRecordsWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	begun, release := make(chan struct{}), make(chan struct{})
	r.encoding = func() { close(begun); <-release }
	r.pipeline.Record([]order.Delivery{r.complete(1)})
	<-begun
	ended := make(chan error)
	go func() { ended <- r.pipeline.EndRecords() }()
	select {
	case <-ended:
		t.Error("it ended before the disk had the record")
	default:
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if found := r.pipeline.Store().LastRecord(); string(found) != "\x01" {
		t.Errorf("the record is %q", found)
	}
}
