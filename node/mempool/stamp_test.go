package mempool

import (
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger"
)

// told is a clock that a test sets.
type told struct {
	time   ledger.Milliseconds
	clocks []ledger.MemberClock
}

func (c *told) View() clock.View { return clock.View{Time: c.time, Near: c.clocks} }

// A batch has the time that the clock confirms, and its proof only if the chain needs that. The
// largest bundle still fits.
func TestStamp(t *testing.T) {
	t.Parallel()
	const noon, room = ledger.Milliseconds(1_700_000_000_000), 2 << 20
	few := []ledger.MemberClock{{Member: 0}, {Member: 2, Offset: -7}}
	many := make([]ledger.MemberClock, 1000)
	for i := range many {
		many[i] = ledger.MemberClock{Member: ledger.MemberIndex(i)}
	}
	week := 7 * 86_400_000 * ledger.Milliseconds(1)
	for _, c := range []struct {
		name     string
		clock    Clock
		maxBytes int
		time     ledger.Milliseconds
		clocks   []ledger.MemberClock
	}{
		{"no clock", nil, room, ledger.NoTime, nil},
		{"not confirmed", &told{ledger.NoTime, few}, room, ledger.NoTime, nil},
		{"a moment later", &told{noon + 5, few}, room, noon + 5, nil},
		{"the largest step", &told{noon + ledger.MaxStep, few}, room, noon + ledger.MaxStep, nil},
		{"a week later", &told{noon + week, few}, room, noon + week, few},
		{"a week later, in the smallest room", &told{noon + week, few},
			ledger.MaxBundleBytes + 4096, noon + week, few},
		{"a thousand clocks in the smallest room", &told{noon + week, many},
			ledger.MaxBundleBytes + 4096, noon + ledger.MaxStep, nil},
	} {
		for _, beside := range []Beside{nil, &neighbours{silent: true}} {
			p := New(Config{BytesMax: 1 << 30, Tip: func() Tip {
				return Tip{Height: 3, Time: noon}
			}, Clock: c.clock, Beside: beside})
			if n, here := beside.(*neighbours); here {
				n.t, n.pool = t, p
			}
			b, encoded := large(t, 1, ledger.MaxBundleBytes-20_000)
			if err := p.Add(b, encoded, nothingKnown); err != nil {
				t.Fatal(err)
			}
			payload := p.Next(c.maxBytes)
			if len(payload) > c.maxBytes {
				t.Fatalf("%s: %d bytes", c.name, len(payload))
			}
			encoded, _, err := SplitPayload(payload)
			if err != nil {
				t.Fatal(err)
			}
			batch, err := ledger.DecodeBatch(encoded)
			if err != nil || len(batch.Bundles) != 1 {
				t.Fatalf("%s: %+v, %v", c.name, batch, err)
			}
			if batch.Header.Time != c.time || batch.Header.Height != 3 ||
				!reflect.DeepEqual(batch.Clocks, c.clocks) {
				t.Errorf("%s: time %d, %d clocks", c.name, batch.Header.Time, len(batch.Clocks))
			}
		}
	}
}
