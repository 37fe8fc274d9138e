package timeline

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// queue is what Queue and Wheel have in common.
type queue interface {
	Push(at time.Duration, event int32)
	Pop() (time.Duration, int32)
	Len() int
}

func TestQueueIsAListInOrder(t *testing.T) {
	t.Parallel()
	testOrder(t, func() queue { return new(Queue[time.Duration, int32]) })
}

func TestWheelIsAListInOrder(t *testing.T) {
	t.Parallel()
	testOrder(t, func() queue { return new(Wheel[time.Duration, int32]) })
}

// testOrder: a queue returns what a list would: the earliest event, and of equal ones the first
// that was pushed.
func testOrder(t *testing.T, empty func() queue) {
	rapid.Check(t, func(t *rapid.T) {
		q := empty()
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
				q.Push(now+wait, pushed)
				pushed++
				continue
			}
			first := 0
			for i := range list {
				if list[i].at < list[first].at {
					first = i
				}
			}
			at, number := q.Pop()
			if at != list[first].at || number != list[first].number {
				t.Fatalf("event %d at %v, want %d at %v", number, at, list[first].number,
					list[first].at)
			}
			now = at
			list = append(list[:first], list[first+1:]...)
			if q.Len() != len(list) {
				t.Fatalf("%d events are left, want %d", q.Len(), len(list))
			}
		}
	})
}

// TestQueueShowsWhatIsScheduled: First is the instant of the event that Pop returns, and Each
// visits each event that Pop has not returned, once.
func TestQueueShowsWhatIsScheduled(t *testing.T) {
	t.Parallel()
	var q Queue[time.Duration, int]
	for number := range 100 {
		q.Push(time.Duration(number*37%11), number)
	}
	left := map[int]bool{}
	for number := range 100 {
		left[number] = true
	}
	for q.Len() > 0 {
		first := q.First()
		at, number := q.Pop()
		if at != first {
			t.Fatalf("event %d at %v, though First returned %v", number, at, first)
		}
		delete(left, number)
		visited := map[int]bool{}
		q.Each(func(number int) {
			if visited[number] || !left[number] {
				t.Fatalf("event %d is visited again, or was popped before", number)
			}
			visited[number] = true
		})
		if len(visited) != len(left) {
			t.Fatalf("%d events are visited, want %d", len(visited), len(left))
		}
	}
}

// TestQueueLetsGo: the memory of a queue holds nothing of an event that Pop returned.
func TestQueueLetsGo(t *testing.T) {
	t.Parallel()
	var q Queue[time.Duration, func()]
	for at := range time.Duration(10) {
		q.Push(at, func() {})
	}
	for q.Len() > 0 {
		q.Pop()
		for i, e := range q.heap[:10] {
			if i >= q.Len() && e.event != nil {
				t.Fatalf("place %d of %d still holds an event", i, q.Len())
			}
		}
	}
}
