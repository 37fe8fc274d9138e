package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// checkWriteRead: written bytes are visible to the owner and to readers, whatever their offset and
// length, and no byte beside them changes.
func checkWriteRead(ctx context.Context, f Fabric) error {
	const size = 1 << 20
	_, _, a, err := sharePair(ctx, f, size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	if !bytes.Equal(a.region.Bytes(), make([]byte, size)) {
		return errors.New("a fresh region is not zero")
	}
	random := rand.New(rand.NewPCG(1, 2))
	model, into := make([]byte, size), make([]byte, size)
	for i, length := range []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000,
		4096, 10_001, 65_535, 65_536, 65_537, 300_003, size} {
		for k, offset := range []int{0, size - length, random.IntN(size - length + 1),
			random.IntN(size - length + 1)} {
			entry := make([]byte, length)
			for j := range entry {
				entry[j] = byte(random.Uint32())
			}
			copy(model[offset:], entry)
			if err := a.do(ctx, a.writeTo(offset, entry)); err != nil {
				return fmt.Errorf("write of %d bytes at %d: %w", length, offset, err)
			}
			if !bytes.Equal(a.region.Bytes(), model) {
				return fmt.Errorf("after a write of %d bytes at %d the region is not what it "+
					"should be", length, offset)
			}
			lent := into[k : k+min(length, size-k) : k+min(length, size-k)]
			if err := a.do(ctx, a.readFrom(offset, lent)); err != nil {
				return fmt.Errorf("read of %d bytes at %d: %w", length, offset, err)
			}
			if !bytes.Equal(lent, entry[:len(lent)]) {
				return fmt.Errorf("a read of %d bytes at %d gives others than were written", length,
					offset)
			}
		}
		at := 8 * i
		a.region.Store(at, uint64(i)<<56|7)
		copy(model[at:], wordBytes(uint64(i)<<56|7))
		var word [8]byte
		if err := a.do(ctx, a.readFrom(at, word[:])); err != nil {
			return err
		}
		if got := wordAt(word[:], 0); got != a.region.Load(at) || got != uint64(i)<<56|7 {
			return fmt.Errorf("the owner stored %#x, it loads %#x, its peer reads %#x",
				uint64(i)<<56|7, a.region.Load(at), got)
		}
	}
	return nil
}

// untilOver runs each work function repeatedly in its own goroutine, until one returns an error or
// the time is over.
func untilOver(ctx context.Context, limit time.Duration, work ...func(i uint64) error) error {
	deadline := time.Now().Add(limit)
	var failed atomic.Bool
	var loops []func() error
	for _, w := range work {
		loops = append(loops, func() error {
			for i := uint64(1); time.Now().Before(deadline) && ctx.Err() == nil &&
				!failed.Load(); i++ {
				if err := w(i); err != nil {
					failed.Store(true)
					return err
				}
				runtime.Gosched()
			}
			return ctx.Err()
		})
	}
	return together(loops...)
}

// twice returns a word with equal halves, which reveals a torn word.
func twice(k uint64) uint64 { return k<<32 | k&(1<<32-1) }

// torn returns an error if a word is not the result of twice.
func torn(who string, i int, word uint64) error {
	if word>>32 != word&(1<<32-1) {
		return fmt.Errorf("%s sees word %d torn: %#x", who, i, word)
	}
	return nil
}

// checkWords: words that several peers write at once are never torn, for local and remote readers.
func checkWords(ctx context.Context, f Fabric) error {
	const words = 16
	hosts, err := startRegions(f, 3)
	if err != nil {
		return err
	}
	first, err := share(ctx, hosts[0], hosts[1], "test", 8*words, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	second, err := join(ctx, first.region, hosts[0], hosts[2], rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	reader, err := join(ctx, first.region, hosts[0], hosts[2], rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	entry, into := make([]byte, 8*words), make([]byte, 8*words)
	return untilOver(ctx, 2*stressTime,
		func(i uint64) error { // one word
			return first.do(ctx, first.writeTo(int(i%words)*8, wordBytes(twice(i))))
		},
		func(i uint64) error { // several, from the second on
			at := 8 + int(i%4)*8
			return second.do(ctx, second.writeTo(at, wordsOf(entry[:8*words-at], twice(i<<8))))
		},
		func(i uint64) error {
			for k := range words {
				if err := torn("the owner", k, first.region.Load(8*k)); err != nil {
					return err
				}
			}
			first.region.Store(int(i%words)*8, twice(i<<16))
			return nil
		},
		func(i uint64) error {
			at := int(i%words) * 8
			if err := reader.do(ctx, reader.readFrom(0, into),
				reader.readFrom(at, into[at:at+8])); err != nil {
				return err
			}
			for k := range words {
				if err := torn("a reader", k, wordAt(into, 8*k)); err != nil {
					return err
				}
			}
			return nil
		})
}

// canarySizes are the sizes of entries with a canary.
var canarySizes = []int{24, 256, 8 << 10, 200 << 10}

// checkCanaryHere: an owner that sees any word of a write sees everything that the write put below
// it.
func checkCanaryHere(ctx context.Context, f Fabric) error {
	_, _, a, err := sharePair(ctx, f, slices.Max(canarySizes)+8, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	for _, size := range canarySizes {
		for _, at := range []int{0, 8} {
			if err := a.do(ctx, a.writeTo(0, make([]byte, a.region.Size()))); err != nil {
				return err
			}
			entry := make([]byte, size)
			if err := untilOver(ctx, stressTime/4,
				func(i uint64) error { return a.do(ctx, a.writeTo(at, wordsOf(entry, i))) },
				func(uint64) error {
					above := uint64(0)
					for k := at + size - 8; k >= at; k -= 8 {
						word := a.region.Load(k)
						if word < above {
							return fmt.Errorf("entry of %d bytes at %d: word %d is of write %d, "+
								"but above it is write %d", size, at, (k-at)/8, word, above)
						}
						above = word
					}
					return nil
				}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCanaryAfar: a read that finds a write's mark in its last word has everything that the write
// put below. So has a read of the entry in the operation after a read of the mark.
func checkCanaryAfar(ctx context.Context, f Fabric) error {
	hosts, err := startRegions(f, 3)
	if err != nil {
		return err
	}
	a, err := share(ctx, hosts[0], hosts[1], "test", slices.Max(canarySizes)+8,
		rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	reader, err := join(ctx, a.region, hosts[0], hosts[2], rdmanet.PermissionRead)
	if err != nil {
		return err
	}
	for _, size := range canarySizes {
		entry, into, mark := make([]byte, size), make([]byte, size), make([]byte, 8)
		check := func(how string, mark uint64) error {
			for k := 0; k < size; k += 8 {
				if word := wordAt(into, k); word < mark {
					return fmt.Errorf("entry of %d bytes, %s: word %d is of write %d, the mark "+
						"of %d", size, how, k/8, word, mark)
				}
			}
			return nil
		}
		if err := a.do(ctx, a.writeTo(0, make([]byte, a.region.Size()))); err != nil {
			return err
		}
		if err := untilOver(ctx, stressTime/2,
			func(i uint64) error { return a.do(ctx, a.writeTo(0, wordsOf(entry, i))) },
			func(uint64) error {
				if err := reader.do(ctx, reader.readFrom(0, into)); err != nil {
					return err
				}
				if err := check("read at once", wordAt(into, size-8)); err != nil {
					return err
				}
				if err := reader.do(ctx, reader.readFrom(size-8, mark),
					reader.readFrom(0, into)); err != nil {
					return err
				}
				return check("read after the mark", wordAt(mark, 0))
			}); err != nil {
			return err
		}
	}
	return nil
}

// checkOperationOrder: a write has landed before the next one starts to land, whatever their sizes.
// Reads see the writes before them.
func checkOperationOrder(ctx context.Context, f Fabric) error {
	const large = 64 << 10
	hosts, err := startRegions(f, 3)
	if err != nil {
		return err
	}
	a, err := share(ctx, hosts[0], hosts[1], "test", large+16, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	reader, err := join(ctx, a.region, hosts[0], hosts[2], rdmanet.PermissionRead)
	if err != nil {
		return err
	}
	entry, mark, behind := make([]byte, large), make([]byte, 8), make([]byte, 8)
	into, own := make([]byte, large), make([]byte, 8)
	return untilOver(ctx, 2*stressTime,
		func(i uint64) error {
			// The large write lies above the small ones, so the check depends on order and not on
			// addresses.
			wordsOf(entry, i)
			if err := a.do(ctx, a.writeTo(16, entry), a.writeTo(8, wordBytes(i)),
				a.writeTo(0, wordBytes(i)), a.readFrom(large+8, own),
				a.writeTo(8, wordBytes(i))); err != nil {
				return err
			}
			if got := wordAt(own, 0); got != i {
				return fmt.Errorf("a read behind write %d sees %d", i, got)
			}
			return nil
		},
		func(uint64) error {
			last := a.region.Load(0)
			if second := a.region.Load(8); second < last {
				return fmt.Errorf("the owner sees the third operation of round %d, and the "+
					"second of %d", last, second)
			}
			for _, k := range []int{large + 8, 16, large / 2} {
				if word := a.region.Load(k); word < last {
					return fmt.Errorf("the owner sees the third operation of round %d, and the "+
						"first of %d", last, word)
				}
			}
			return nil
		},
		func(uint64) error {
			if err := reader.do(ctx, reader.readFrom(0, mark), reader.readFrom(8, behind),
				reader.readFrom(16, into)); err != nil {
				return err
			}
			for k := 0; k < large; k += 8 {
				if word := wordAt(into, k); word < wordAt(mark, 0) || word < wordAt(behind, 0) {
					return fmt.Errorf("a reader saw round %d, and behind that word %d of round %d",
						max(wordAt(mark, 0), wordAt(behind, 0)), k/8, word)
				}
			}
			return nil
		})
}

// checkCompletionOrder: completions of one peer come in the order of posting, over its regions,
// over all sizes, over reads and writes, and in every queue.
func checkCompletionOrder(ctx context.Context, f Fabric) error {
	const regions, rounds, large = 3, 300, 64 << 10
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	var a [regions]access
	for i := range a {
		if a[i], err = share(ctx, hosts[0], hosts[1], fmt.Sprint("test", i), 4*large,
			rdmanet.PermissionReadWrite); err != nil {
			return err
		}
	}
	var work []func() error
	for w := range 2 {
		p, err := newPoster(hosts[1])
		if err != nil {
			return err
		}
		work = append(work, func() error {
			random := rand.New(rand.NewPCG(uint64(w), 3))
			// For reads and writes alike: its contents are not checked.
			buffer := make([]byte, large)
			for range rounds {
				for p.outstanding() > postDepth-8 {
					completions, err := p.take(ctx)
					if err != nil {
						return err
					}
					if err := completions[0].Err; err != nil {
						return err
					}
				}
				var batch []rdmanet.Operation
				for range 1 + random.IntN(8) {
					to, bytes := &a[random.IntN(regions)],
						buffer[:[]int{0, 8, 64, 100, 4096, large}[random.IntN(6)]]
					if random.IntN(2) == 0 {
						batch = append(batch, to.writeTo(large*w, make([]byte, len(bytes))))
					} else {
						batch = append(batch, to.readFrom(large*2, bytes))
					}
				}
				if err := p.post(batch...); err != nil {
					return err
				}
			}
			return p.drain(ctx)
		})
	}
	return together(work...)
}

// checkBatch: one call posts to many owners and waits for all of them, repeatedly.
func checkBatch(ctx context.Context, f Fabric) error {
	const owners, rounds = 5, 200
	hosts, err := startRegions(f, owners+1)
	if err != nil {
		return err
	}
	p, err := newPoster(hosts[owners])
	if err != nil {
		return err
	}
	var a [owners]access
	for i := range a {
		if a[i], err = share(ctx, hosts[i], hosts[owners], "test",
			256, rdmanet.PermissionReadWrite); err != nil {
			return err
		}
	}
	for round := range uint64(rounds) {
		var batch []rdmanet.Operation
		var back [owners][8]byte
		for i := range a {
			at := int(round%16) * 16
			batch = append(batch, a[i].writeTo(at, wordsOf(make([]byte, 16), round<<8|uint64(i))),
				a[i].readFrom(at+8, back[i][:]))
		}
		if err := p.do(ctx, batch...); err != nil {
			return err
		}
		for i := range a {
			if got := wordAt(back[i][:], 0); got != round<<8|uint64(i) ||
				a[i].region.Load(int(round%16)*16) != got {
				return fmt.Errorf("round %d: owner %d has %#x, and %#x is read from it", round,
					i, a[i].region.Load(int(round%16)*16), got)
			}
		}
	}
	return nil
}

// checkEverybody: every member writes to its own part of every member's region, and reads the parts
// of others.
func checkEverybody(ctx context.Context, f Fabric) error {
	const members, part = 4, 4096
	hosts, err := startRegions(f, members)
	if err != nil {
		return err
	}
	var regions [members]rdmanet.Region
	for i := range hosts {
		if regions[i], err = hosts[i].Expose("test", members*part); err != nil {
			return err
		}
		for k := range hosts {
			if err := regions[i].Grant(peerOf(hosts[k]), rdmanet.PermissionReadWrite); err != nil {
				return err
			}
		}
	}
	var work []func(uint64) error
	for k := range hosts { // including itself
		var a [members]access
		for i := range hosts {
			if a[i], err = join(ctx, regions[i], hosts[i], hosts[k],
				rdmanet.PermissionReadWrite); err != nil {
				return err
			}
		}
		entry, into := make([]byte, part), make([]byte, part)
		work = append(work, func(round uint64) error {
			i, other := int(round)%members, int(round/members)%members
			if err := a[i].do(ctx, a[i].writeTo(k*part, wordsOf(entry, round<<8|uint64(k))),
				a[i].readFrom(other*part, into)); err != nil {
				return err
			}
			for at := 0; at < part; at += 8 {
				if word := wordAt(into, at); word != 0 && word&0xff != uint64(other) {
					return fmt.Errorf("the part of member %d holds a word of %d", other, word&0xff)
				}
			}
			return nil
		})
	}
	return untilOver(ctx, stressTime, work...)
}

// checkInline: short bytes belong to the caller again once Post has returned. The write still has
// the original bytes.
func checkInline(ctx context.Context, f Fabric) error {
	const slots = 32
	_, _, a, err := sharePair(ctx, f, slots*2*rdmanet.InlineMax, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	bytes := make([]byte, rdmanet.InlineMax)
	for round := range 20 {
		for i := range slots {
			length := []int{rdmanet.InlineMax, 8, 1, rdmanet.InlineMax - 3}[i%4]
			for k := range length {
				bytes[k] = byte(round + i + 1)
			}
			if err := a.post(a.writeTo(i*2*rdmanet.InlineMax, bytes[:length])); err != nil {
				return err
			}
			for k := range bytes {
				bytes[k] = 0xff
			}
		}
		if err := a.drain(ctx); err != nil {
			return err
		}
		for i := range slots {
			length := []int{rdmanet.InlineMax, 8, 1, rdmanet.InlineMax - 3}[i%4]
			for k, got := range a.region.Bytes()[i*2*rdmanet.InlineMax:][:rdmanet.InlineMax+1] {
				want := byte(0)
				if k < length {
					want = byte(round + i + 1)
				}
				if got != want {
					return fmt.Errorf("byte %d of write %d of %d bytes is %d, want %d", k, i,
						length, got, want)
				}
			}
		}
	}
	return nil
}
