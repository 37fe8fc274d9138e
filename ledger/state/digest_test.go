package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"
)

// pattern returns an entry of this size.
func pattern(size, step int) []byte {
	entry := make([]byte, size)
	for i := range entry {
		entry[i] = byte(i * step)
	}
	return entry
}

// TestDigestOfOldChains: digests are those of the chains that were made before, with entries of one
// chunk of BLAKE3 and of several.
func TestDigestOfOldChains(t *testing.T) {
	t.Parallel()
	var d Digest
	for i := range 70 {
		d.Add(pattern(37*i, i))
	}
	d.Remove(pattern(37*2, 2))
	const want = "433a59654c18241a03364741a7cb89ace1effdcb7a38fa99572ed563a43793a1"
	if got := d.Sum().String(); got != want {
		t.Fatalf("digest %s, want %s", got, want)
	}
}

// TestDigestAddsLanes: the digest is the sum of the entries' lanes, each modulo 2^16.
func TestDigestAddsLanes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var d Digest
		var lanes [digestLanes]uint16
		for range rapid.IntRange(1, 8).Draw(t, "entries") {
			entry := rapid.SliceOfN(rapid.Byte(), 0, 1100).Draw(t, "entry")
			hasher := blake3.New(32, nil)
			_, _ = hasher.Write(entry)
			var expanded [2 * digestLanes]byte
			output := hasher.XOF()
			for at := 0; at < len(expanded); at += 64 {
				_, _ = output.Read(expanded[at : at+64])
			}
			add := rapid.Bool().Draw(t, "add")
			for i := range lanes {
				lane := binary.LittleEndian.Uint16(expanded[2*i:])
				if add {
					lanes[i] += lane
				} else {
					lanes[i] -= lane
				}
			}
			if add {
				d.Add(entry)
			} else {
				d.Remove(entry)
			}
		}
		for i, lane := range lanes {
			if got := uint16(d.words[i/4] >> (16 * (i % 4))); got != lane {
				t.Fatalf("lane %d is %d, want %d", i, got, lane)
			}
		}
	})
}

// BenchmarkHashAfterDigest hashes 64 short messages after an entry was added, as a block does. It
// takes the same time for each as without the entry.
func BenchmarkHashAfterDigest(b *testing.B) {
	for _, entries := range []int{0, 1} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			var digest Digest
			var message [42]byte
			for b.Loop() {
				for range entries {
					digest.Add(message[:])
				}
				for range 64 {
					sha256.Sum256(message[:])
				}
			}
		})
	}
}

// BenchmarkDigestAdd adds an entry of the size of an account's.
func BenchmarkDigestAdd(b *testing.B) {
	var d Digest
	entry := pattern(90, 1)
	b.ReportAllocs()
	for b.Loop() {
		d.Add(entry)
	}
}
