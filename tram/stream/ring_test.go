package stream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// FuzzRing fills a ring with any bytes. Its reader never panics, proposes only entries that lie
// there with their canary, and stays within its memory.
func FuzzRing(f *testing.F) {
	whole := make([]byte, RecordSize(5))
	putRecord(whole, 1, []byte("entry"))
	torn := bytes.Clone(whole)
	clear(torn[len(torn)-recordTail:])
	long := make([]byte, recordHead)
	binary.LittleEndian.PutUint64(long, kindEntry|uint64(1<<32-1)<<lengthFrom)
	two := append(bytes.Clone(whole), make([]byte, RecordSize(0))...)
	putRecord(two[len(whole):], 2, nil)
	for _, seed := range [][]byte{nil, whole, torn, long, two, skipBytes,
		bytes.Repeat(skipBytes, 30), append(bytes.Clone(whole), skipBytes...), {0x54, 0x53, 1}} {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, content []byte, durable uint64) {
		config := Config{Writers: []order.ServerID{0}, Carriers: []order.ServerID{0}, Stretch: 1,
			Patience: 1, Entries: 4, EntryMax: 16, RingSize: 160, Depth: 2}
		carrier, err := NewCarrier(config, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		ring := make(heap, config.RingSize)
		if err := carrier.Attach(0, 1, ring); err != nil {
			t.Fatal(err)
		}
		copy(ring, content)
		for range 3 {
			carrier.Poll()
			for _, entry := range carrier.Propose(1 << 20) {
				if entry.Number == 0 || len(entry.Payload) > config.EntryMax ||
					!bytes.Contains(content, entry.Payload) {
					t.Fatalf("entry %d is %x, in a ring of %x", entry.Number, entry.Payload,
						content)
				}
			}
			carrier.Advance(durable, durable)
			copy(ring[len(ring)/2:], content)
		}
		if b := carrier.inboxes[0]; b.released > b.seen || b.seen-b.released > uint64(len(ring)) {
			t.Fatalf("%d bytes seen, %d given back", b.seen, b.released)
		}
		carrier.Detach(0)
	})
}

// TestRecordsWrap puts records of all sizes into a small ring, round after round. Each is read as
// it was written, and released memory is clear.
func TestRecordsWrap(t *testing.T) {
	t.Parallel()
	s := newStory(t, 1, 1, func(c *Config) {
		c.EntryMax, c.RingSize, c.Entries = 40, 2*RecordSize(40)+8, 4
	})
	number := uint64(0)
	for range 200 {
		for {
			payload := bytes.Repeat([]byte{byte(number + 1)}, int((number*7)%41))
			if s.writers[0].Offer(number+1, payload) != nil {
				break
			}
			number++
		}
		s.write(0)
		s.carriers[0].Poll()
		last := s.carriers[0].Ordered()
		for _, entry := range s.carriers[0].Propose(1 << 20) {
			last++
			if want := bytes.Repeat([]byte{byte(last)},
				int(((last-1)*7)%41)); entry.Number != last || !bytes.Equal(entry.Payload, want) {
				t.Fatalf("entry %d is %x, want entry %d to be %x", entry.Number, entry.Payload,
					last, want)
			}
		}
		s.ordered(last)
	}
	if number < 200 {
		t.Errorf("only %d entries came through", number)
	}
}

// pass carries one entry from a writer to a carrier's proposal and to the end.
func pass(s *story, number uint64, payload []byte) bool {
	writer, carrier := s.writers[0], s.carriers[0]
	if writer.Offer(number, payload) != nil {
		return false
	}
	for _, write := range writer.Writes() {
		copy(s.rings[[2]int{0, 0}][write.Offset:], write.Bytes)
		writer.Completed(write.Carrier)
	}
	carrier.Poll()
	if len(carrier.Propose(1<<20)) != 1 {
		return false
	}
	carrier.Advance(number, number)
	for _, report := range carrier.Reports() {
		writer.Feedback(0, report.Feedback)
	}
	return true
}

func TestPassAllocatesNothing(t *testing.T) {
	s := newStory(t, 1, 1, nil)
	number := uint64(0)
	payload := make([]byte, 16)
	if count := testing.AllocsPerRun(200, func() {
		number++
		if !pass(s, number, payload) {
			t.Fatalf("entry %d does not come through", number)
		}
	}); count != 0 {
		t.Errorf("%v allocations for an entry, want none", count)
	}
}

// BenchmarkPass measures what an entry costs a writer and a carrier together, without the fabric:
// into memory, into the ring, out of it, and released.
func BenchmarkPass(b *testing.B) {
	for _, size := range []int{64, 1024, 16384} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			config := Config{Writers: []order.ServerID{0}, Carriers: []order.ServerID{0},
				Stretch: 64, Patience: 10, Entries: 1024, EntryMax: 16384, RingSize: 1 << 20,
				Depth: 64}
			writer, _ := NewWriter(config)
			carrier, _ := NewCarrier(config, 0, 0)
			s := &story{writers: []*Writer{writer}, carriers: []*Carrier{carrier},
				rings: map[[2]int]heap{{}: make(heap, config.RingSize)}}
			_ = carrier.Attach(0, 1, s.rings[[2]int{}])
			_ = writer.Attach(0, 1, 0)
			payload := make([]byte, size)
			number := uint64(0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				number++
				if !pass(s, number, payload) {
					b.Fatalf("entry %d does not come through", number)
				}
			}
		})
	}
}

// BenchmarkIdle measures the cost of a poll for a carrier of eight writers if nothing arrives.
func BenchmarkIdle(b *testing.B) {
	config := Config{Writers: []order.ServerID{0, 1, 2, 3, 4, 5, 6, 7},
		Carriers: []order.ServerID{0}, Stretch: 1, Patience: 10, Entries: 16, EntryMax: 64,
		RingSize: 4096, Depth: 4}
	carrier, _ := NewCarrier(config, 0, 0)
	for writer := range config.Writers {
		_ = carrier.Attach(order.ServerID(writer), 1, make(heap, config.RingSize))
	}
	b.ReportAllocs()
	for b.Loop() {
		carrier.Poll()
	}
}
