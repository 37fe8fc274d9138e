package node

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

func deliveredRounds() []order.Delivery {
	return []order.Delivery{
		{},
		{Epoch: 3, Round: 1 << 40, Messages: []order.Message{{Origin: 1, Payload: []byte{}},
			{Origin: 1 << 20, Payload: []byte("payload")}}, Removed: []order.ServerID{0, 7}},
	}
}

func TestRoundsContentsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range deliveredRounds() {
		whole := encodeRound(want)
		got, err := decodeRound(whole)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		for length := range whole {
			if _, err := decodeRound(whole[:length]); err == nil {
				t.Errorf("%d of %d bytes were taken", length, len(whole))
			}
		}
	}
}

func FuzzDecodeRound(f *testing.F) {
	for _, round := range deliveredRounds() {
		f.Add(encodeRound(round))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeRound(b)
		if err == nil && !bytes.Equal(encodeRound(d), b) {
			t.Fatalf("%x was taken and means %+v", b, d)
		}
	})
}

// Kept contents outlive the process. Remembered contents do not. Damaged contents are not returned.
func TestContentsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, remembered := []byte("kept"), []byte("remembered")
	c := newContents(dir)
	if err := c.keep(kept); err != nil {
		t.Fatal(err)
	}
	if hash := c.remember(remembered); !bytes.Equal(c.get(hash), remembered) {
		t.Fatal("not remembered")
	}
	decision := &generation.Decision{Tail: []generation.TailRound{{Content: sha256.Sum256(kept)}}}
	if err := errors.Join(c.keep([]byte("of an earlier one")), c.clear(decision)); err != nil {
		t.Fatal(err)
	}
	c = newContents(dir)
	hashes, err := c.kept()
	if err != nil || len(hashes) != 1 || !bytes.Equal(c.get(hashes[0]), kept) ||
		c.get(sha256.Sum256(remembered)) != nil {
		t.Fatalf("%x, %v", hashes, err)
	}
	if err := os.WriteFile(c.path(hashes[0]), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.get(hashes[0]) != nil {
		t.Fatal("damaged contents are given out")
	}
	if hashes, err := c.kept(); err != nil || len(hashes) != 0 {
		t.Fatalf("%x, %v", hashes, err)
	}
}
