package wire

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// BenchmarkRequests measures a small request, and an answer of the size of catch-up's pieces.
func BenchmarkRequests(b *testing.B) {
	for _, fabric := range []struct {
		name  string
		hosts func(testing.TB) (a, b rdmanet.Host)
	}{{"memory", overMemory}, {"p2p", overP2P}} {
		chunk := make([]byte, 64<<10)
		for _, c := range []struct {
			name  string
			serve handler
			bytes int
		}{{"small", echo, 200}, {"large", func(_ context.Context, r *Served) error {
			for range 63 {
				if err := r.Send(chunk); err != nil {
					return err
				}
			}
			return r.End(chunk)
		}, 64 * len(chunk)}} {
			b.Run(c.name+"/"+fabric.name, func(b *testing.B) {
				from, to := fabric.hosts(b)
				x := start(b, from, unused, nil)
				start(b, to, c.serve, nil)
				body, wake := []byte(strings.Repeat("x", 200)), make(chan struct{}, 1)
				b.SetBytes(int64(c.bytes))
				b.ReportAllocs()
				for b.Loop() {
					asked := x.Ask(to.ID(), Request{Body: body, Wake: wake, AnswerMax: 8 << 20,
						Deadline: time.Now().Add(time.Minute)})
					for !asked.Progress().Whole {
						<-wake
					}
					asked.Close()
				}
			})
		}
	}
}
