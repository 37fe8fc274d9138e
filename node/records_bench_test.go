package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// lateHost is a host whose messages come late, as from another data centre.
type lateHost struct {
	*memory.Host
	by   time.Duration
	done <-chan struct{}
}

type lateFrames struct {
	due    time.Time
	from   rdmanet.Peer
	frames [][]byte
}

// Receive implements rdmanet.Host.
func (l lateHost) Receive(lane string, receive rdmanet.ReceiveFunc) error {
	queue := make(chan lateFrames, 1<<12)
	go func() {
		for {
			select {
			case f := <-queue:
				time.Sleep(time.Until(f.due))
				receive(f.from, f.frames)
			case <-l.done:
				return
			}
		}
	}()
	return l.Host.Receive(lane, func(from rdmanet.Peer, frames [][]byte) {
		select {
		case queue <- lateFrames{time.Now().Add(l.by), from, slices.Clone(frames)}:
		case <-l.done:
		}
	})
}

// BenchmarkLateMessages measures how long a lone transaction takes to be durable in a shard of
// three nodes whose messages come late: with log_rounds, with prompt, and with neither. It shows
// the median.
func BenchmarkLateMessages(b *testing.B) {
	for _, by := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		for name, change := range map[string]func(int, *home.Config){"blocks": nil,
			"records": logging(0, 1, 2), "prompt": prompting} {
			b.Run(fmt.Sprintf("%v/%s", by, name), func(b *testing.B) {
				s := newShard(b, 3, change)
				done := make(chan struct{})
				b.Cleanup(func() { close(done) })
				s.hosts = func(_ int, host rdmanet.Host) rdmanet.Host {
					return lateHost{host.(*memory.Host), by, done}
				}
				s.start(s.all()...)
				s.ordering(s.all()...)
				s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
				var took []time.Duration
				for b.Loop() {
					begin := time.Now()
					s.submit(0, report.LevelDurable, s.transfer())
					took = append(took, time.Since(begin))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/median")
				for i := range s.nodes {
					s.stop(i)
				}
			})
		}
	}
}
