package pipeline

import (
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	meterWindow  = 10 * time.Second
	meterSamples = 1024 // latencies kept for the median
	meterBlocks  = 4096 // bounds the blocks that wait to become durable
)

// meter measures transactions per second and median latencies over the last ten seconds.
type meter struct {
	mu      sync.Mutex
	started time.Time
	counts  [11]uint64 // by second, in a ring
	seconds [11]int64
	ordered samples
	durable samples
	waiting []waiting // blocks with transactions of this node that are not durable yet
}

type waiting struct {
	height   ledger.Height
	admitted time.Time
}

// samples is a ring of latencies with the time of each.
type samples struct {
	at     [meterSamples]time.Time
	value  [meterSamples]time.Duration
	filled int
	next   int
}

func (s *samples) add(now time.Time, value time.Duration) {
	s.at[s.next], s.value[s.next] = now, value
	s.next = (s.next + 1) % meterSamples
	s.filled = min(s.filled+1, meterSamples)
}

func (s *samples) median(now time.Time) time.Duration {
	var recent []time.Duration
	for i := range s.filled {
		if now.Sub(s.at[i]) <= meterWindow {
			recent = append(recent, s.value[i])
		}
	}
	if len(recent) == 0 {
		return 0
	}
	slices.Sort(recent)
	return recent[len(recent)/2]
}

func (m *meter) applied(height ledger.Height, transactions int, admitted []time.Time) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	second := now.Unix()
	slot := second % int64(len(m.counts))
	if m.seconds[slot] != second {
		m.seconds[slot], m.counts[slot] = second, 0
	}
	m.counts[slot] += uint64(transactions)
	if len(admitted) == 0 {
		return
	}
	for i, at := range admitted {
		if i < 16 { // a block's bundles came at about the same time: a few are enough
			m.ordered.add(now, now.Sub(at))
		}
	}
	if len(m.waiting) < meterBlocks {
		m.waiting = append(m.waiting, waiting{height, admitted[0]})
	}
}

func (m *meter) madeDurable(height ledger.Height) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	done := 0
	for done < len(m.waiting) && m.waiting[done].height <= height {
		m.durable.add(now, now.Sub(m.waiting[done].admitted))
		done++
	}
	m.waiting = slices.Delete(m.waiting, 0, done)
}

// Figures are the node's own measurements over the last ten seconds.
type Figures struct {
	// TransactionsPerSecond counts clients' transactions where they end here: when they are applied
	// or fail, or when their wait for other shards ends. Verdicts and transactions that are only
	// passed on do not count.
	TransactionsPerSecond float64
	// OrderLatency and DurableLatency are medians of the time from admission at this node until the
	// block that holds the transaction is ordered or durable. The transaction may still wait for
	// other shards then. They are zero if nothing was measured.
	OrderLatency, DurableLatency time.Duration
}

func (m *meter) figures() Figures {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	total := uint64(0)
	for i := range m.counts {
		if age := now.Unix() - m.seconds[i]; age >= 1 && age <= 10 {
			total += m.counts[i]
		}
	}
	window := min(10, max(1, now.Sub(m.started).Seconds()))
	return Figures{TransactionsPerSecond: float64(total) / window,
		OrderLatency: m.ordered.median(now), DurableLatency: m.durable.median(now)}
}
