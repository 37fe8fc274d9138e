package catchup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
)

func TestContentsByTheirHash(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	chain := newChain(t, 1, 1, 0)
	held := map[[32]byte][]byte{}
	for _, size := range []int{1, PieceBytesMin, 10*PieceBytesMin + 7} {
		content := bytes.Repeat([]byte{byte(size)}, size)
		held[sha256.Sum256(content)] = content
	}
	lying := sha256.Sum256([]byte("asked for"))
	held[lying] = []byte("something else")
	f.exchange("a", chain, func(c *Config) {
		c.Contents = func(hash [32]byte) []byte { return held[hash] }
	})
	f.exchange("b", chain, nil)
	x := f.exchange("c", chain, func(c *Config) { c.PieceBytes = PieceBytesMin })
	for hash, want := range held {
		got, err := x.FetchContent(t.Context(), "a", hash)
		if hash == lying {
			if !errors.Is(err, ErrUnavailable) {
				t.Fatalf("contents of another hash give %v", err)
			}
		} else if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
		}
		if _, err := x.FetchContent(t.Context(), "b", hash); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("from a node without: %v", err)
		}
	}
	x.SetPeers([]rdmanet.PeerID{"", "b", "c"})
	if _, err := x.FetchContent(t.Context(), "a", lying); !errors.Is(err, rdmanet.ErrNotMember) {
		t.Fatalf("from who is no peer any more: %v", err)
	}
}

func FuzzDecodeContentRequest(f *testing.F) {
	f.Add(contentRequest{hash: [32]byte{1}, offset: 5, bytes: PieceBytesMin}.encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeContentRequest(data); err == nil && !bytes.Equal(r.encode(), data) {
			t.Fatalf("%x was taken and means %x", data, r.encode())
		}
	})
}
