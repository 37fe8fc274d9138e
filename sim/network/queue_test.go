package network

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQueueIsAListInOrder: the queue returns what a list would: the earliest event, and of equal
// ones the first that was pushed.
func TestQueueIsAListInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		type item struct {
			at     time.Duration
			number int32
		}
		var list []item
		now, pushed := time.Duration(0), int32(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") || len(list) == 0 {
				wait := time.Duration(rapid.SampledFrom([]int{0, 1, 200, 256, 5000, 1 << 22,
					1<<22 - 1, 1 << 23, 1 << 30}).Draw(t, "wait") + rapid.IntRange(0, 300).Draw(t,
					"more"))
				list = append(list, item{at: now + wait, number: pushed})
				q.push(now+wait, timer, pushed)
				pushed++
				continue
			}
			first := 0
			for i := range list {
				if list[i].at < list[first].at {
					first = i
				}
			}
			got := q.pop()
			if got.at != list[first].at || got.number != list[first].number {
				t.Fatalf("event %d at %v, want %d at %v", got.number, got.at, list[first].number,
					list[first].at)
			}
			now = got.at
			list = append(list[:first], list[first+1:]...)
			if q.empty() != (len(list) == 0) {
				t.Fatalf("empty is %v with %d events", q.empty(), len(list))
			}
		}
	})
}
