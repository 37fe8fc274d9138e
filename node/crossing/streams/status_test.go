package streams

import "testing"

// What a chain has durably of its parent's stream is not what it has appended: a block may be lost.
func TestCarriedDurably(t *testing.T) {
	t.Parallel()
	var s Streams
	expect := func(want uint64, is bool) {
		t.Helper()
		if number, known := s.CarriedDurably(); number != want || known != is {
			t.Errorf("%d, %v, want %d, %v", number, known, want, is)
		}
	}
	expect(0, false)
	s.heights.applied(1, 5)
	expect(0, false)
	s.heights.durableTo(1)
	expect(5, true)
	s.heights.applied(2, 9)
	expect(5, true)
	s.heights.durableTo(2)
	expect(9, true)
}
