package pairs

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"
)

// Messages of all lengths up to the longest that are hashed together, and beyond, have the hashes
// of crypto/sha256. The memory is used again without being cleared.
func TestSum(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	var pair Pair
	message := func(length int) []byte {
		made := make([]byte, length)
		_, _ = random.Read(made) // which never fails
		return made
	}
	const longest = maxBlocks*blockSize + 70
	together := 0
	for length := range longest {
		for _, other := range []int{length, length + 1, max(0, length-1), length ^ 5,
			longest - length} {
			a, b := message(length), message(other)
			before := append(bytes.Clone(a), b...)
			first, second := pair.Sum(a, b)
			if first != sha256.Sum256(a) || second != sha256.Sum256(b) {
				t.Fatalf("messages of %d and %d bytes have other hashes", length, other)
			}
			prefix := string(message(length % 30))
			first, second = pair.SumAfter(prefix, a, b)
			if first != sha256.Sum256(append([]byte(prefix), a...)) ||
				second != sha256.Sum256(append([]byte(prefix), b...)) {
				t.Fatalf("messages of %d and %d bytes after %d have other hashes", length, other,
					len(prefix))
			}
			if !bytes.Equal(append(bytes.Clone(a), b...), before) {
				t.Fatal("the messages changed")
			}
			if blocksFor(length) == blocksFor(other) && blocksFor(length) <= maxBlocks {
				together++
			}
		}
	}
	if together < longest {
		t.Errorf("only %d pairs were of one size", together)
	}
}

// Messages that are written into the memory have the same hashes, whatever it had before.
func TestSumRoom(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	bytesOf := rand.NewChaCha8([32]byte{2})
	var pair Pair
	for range 4000 {
		size := 1 + random.IntN(maxRoom)
		for range 1 + random.IntN(3) {
			first, second := pair.Room(size)
			_, _ = bytesOf.Read(first) // which never fails
			_, _ = bytesOf.Read(second)
			want, other := sha256.Sum256(first), sha256.Sum256(second)
			if got, also := pair.SumRoom(); got != want || also != other {
				t.Fatalf("messages of %d bytes have other hashes", size)
			}
		}
		if random.IntN(2) == 0 {
			pair.Sum(make([]byte, random.IntN(300)), make([]byte, random.IntN(300)))
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("one"), []byte("other"))
	f.Add([]byte{}, bytes.Repeat([]byte{0xff}, 55))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		first, second := new(Pair).Sum(a, b)
		if first != sha256.Sum256(a) || second != sha256.Sum256(b) {
			t.Error("other hashes")
		}
	})
}

// BenchmarkSum hashes two messages of the sizes that an account and a node of their tree have.
func BenchmarkSum(b *testing.B) {
	for name, length := range map[string]int{"account": 75, "node": 129} {
		x, y := make([]byte, length), make([]byte, length)
		b.Run(name+"/pair", func(b *testing.B) {
			var pair Pair
			for b.Loop() {
				x[0]++
				pair.Sum(x, y)
			}
		})
		b.Run(name+"/alone", func(b *testing.B) {
			for b.Loop() {
				x[0]++
				_, _ = sha256.Sum256(x), sha256.Sum256(y)
			}
		})
	}
}
