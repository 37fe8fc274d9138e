package trace

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestText: lines begin with the instant, and text does not change the hash.
func TestText(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	with, without := New[time.Duration](&text, 8), New[time.Duration](nil, 8)
	for _, trace := range []*Trace[time.Duration]{with, without} {
		trace.Note(0, 1, 2)
		trace.Say(1500, "%d sends %q", 3, "x")
		trace.Note(1500, 4)
		trace.Say(time.Second, "done")
		if err := trace.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if want := "   1.5µs  3 sends \"x\"\n      1s  done\n"; text.String() != want {
		t.Errorf("the text is\n%s, want\n%s", text.String(), want)
	}
	if with.Hash() != without.Hash() {
		t.Errorf("hash %x with text, %x without", with.Hash(), without.Hash())
	}
	if !with.HasText() || without.HasText() {
		t.Errorf("text is wanted: %v and %v", with.HasText(), without.HasText())
	}
}

// TestHash: each instant and fact changes the hash, and so does their order.
func TestHash(t *testing.T) {
	t.Parallel()
	seen := map[uint64]int{}
	for number, notes := range [][][]uint64{
		{}, {{0}}, {{0}, {0}}, {{1}}, {{0, 1}}, {{0, 2}}, {{0, 1, 2}}, {{0, 2, 1}},
	} {
		trace := New[time.Duration](nil, 0)
		for _, note := range notes {
			trace.Note(time.Duration(note[0]), note[1:]...)
		}
		if other, is := seen[trace.Hash()]; is {
			t.Errorf("traces %d and %d have one hash", other, number)
		}
		seen[trace.Hash()] = number
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestCloseReportsErrors: an error of writing is returned in the end.
func TestCloseReportsErrors(t *testing.T) {
	t.Parallel()
	trace := New[time.Duration](broken{}, 12)
	trace.Say(0, "lost")
	if err := trace.Close(); !errors.Is(err, errBroken) {
		t.Errorf("%v, want %v", err, errBroken)
	}
}
