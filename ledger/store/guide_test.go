package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// high draws a height, often one that 32 bits do not hold.
func high(t *rapid.T) ledger.Height {
	return ledger.Height(rapid.Byte().Draw(t, "high byte"))<<32 |
		ledger.Height(rapid.Uint32().Draw(t, "height"))
}

// TestHighBlocks: places, guides and histories hold heights beyond 32 bits.
func TestHighBlocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := position{height: high(t), index: rapid.Uint32Max(placeMask).Draw(t, "index"),
			kind: rapid.ByteMax(indexVoid-1).Draw(t, "kind"), packed: rapid.Bool().Draw(t,
				"packed"), lapse: lapse(rapid.ByteMax(lapseMask).Draw(t, "lapse"))}
		value := (&record{where: want}).value()
		if got := decodePlaceOf(value[:]); got != want {
			t.Fatalf("%+v is read as %+v", want, got)
		}
		guided := &run{kind: rowRun}
		guided.expect(1)
		id := ledger.Hash{1}
		guided.note(id[:], value[:])
		again := &run{kind: rowRun, records: 1}
		if err := again.decodeGuide(guided.encodeGuide()); err != nil ||
			again.highest != want.height || again.count != guided.count {
			t.Fatalf("a guide to block %d is read as one to block %d: %v", want.height,
				again.highest, err)
		}
		steps := []step{{height: want.height}}
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			next := steps[len(steps)-1]
			next.height += ledger.Height(rapid.Uint64Max(9).Draw(t, "distance"))
			next.index = rapid.Uint32().Draw(t, "step")
			steps = append(steps, next)
		}
		history := appendHistory(nil, steps)
		for i, each := range steps {
			where, err := decodeHistory(history, uint64(i))
			if err != nil || where.height != each.height || where.index != each.index {
				t.Fatalf("step %d, %+v, is read as %+v: %v", i, each, where, err)
			}
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("a height without room in a record is written")
		}
	}()
	(&record{where: position{height: 1 << (8 * heightSize)}}).value()
}

// TestIDsAboveAHighHead: an id of a block above the head is damage, however high both are.
func TestIDsAboveAHighHead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		height, head := high(t), high(t)
		value := (&record{where: position{height: height}}).value()
		rows := idRows{run: &run{kind: rowRun}, height: head, records: 1}
		err := rows.visit(append(make([]byte, ledger.HashSize), value[:]...),
			func(uint64, []byte, []byte) error { return nil })
		if (err == nil) != (height <= head) {
			t.Fatalf("an id of block %d, the head is block %d: %v", height, head, err)
		}
	})
}

// TestMalformedGuides: a guide that does not fit its run, or is out of order, is malformed; one
// that lost its end is missing.
func TestMalformedGuides(t *testing.T) {
	t.Parallel()
	const records = 2*chunkOf + 3
	ids := &run{kind: rowRun}
	ids.expect(records)
	for i := range uint64(records) {
		var id ledger.Hash
		binary.BigEndian.PutUint64(id[:], i)
		value := (&record{where: position{height: 1, kind: byte(i % 2)}}).value()
		ids.note(id[:], value[:])
	}
	timed := &run{kind: rowRun, spans: spans{now: 1, begins: []begin{{1, 0}}}}
	timed.expect(records)
	for i := range uint64(records) { // a third has no deadline, and the deadlines of some are over
		var id ledger.Hash
		binary.BigEndian.PutUint64(id[:], i)
		value := (&record{where: position{height: 1, kind: indexFailed,
			lapse: lapse(i % 3)}}).value()
		timed.note(id[:], value[:])
	}
	entries := &run{kind: rowEntries, bytes: 77}
	entries.expect(3)
	for _, name := range []string{"a", "b", "c"} {
		key := state.AppendAccountKey(nil, ledger.AccountPath(name))
		entries.starts.add(key)
		entries.note(key, nil)
	}
	number := func(guide []byte, at int) []byte { return guide[1+8*at:][:8] }
	add := func(at int, more uint64) func([]byte) []byte {
		return func(guide []byte) []byte {
			field := number(guide, at)
			binary.BigEndian.PutUint64(field, binary.BigEndian.Uint64(field)+more)
			return guide
		}
	}
	swap := func(at, size int) func([]byte) []byte {
		return func(guide []byte) []byte {
			one, other := guide[at:at+size], guide[at+size:at+2*size]
			first := bytes.Clone(one)
			copy(one, other)
			copy(other, first)
			return guide
		}
	}
	cut := func(guide []byte) []byte { return guide[:len(guide)-1] }
	longer := func(guide []byte) []byte { return append(guide, make([]byte, 8)...) }
	version := func(guide []byte) []byte { guide[0]++; return guide }
	keys := entriesGuideHeadSize + 4*3
	for _, test := range []struct {
		name  string
		of    *run
		spoil func([]byte) []byte
		want  error
	}{
		{"ids", ids, func(guide []byte) []byte { return guide }, nil},
		{"ids, another version", ids, version, errRow},
		{"ids, more records", ids, add(0, 1), errRow},
		{"ids, more bytes", ids, add(1, 1), errRow},
		{"ids, more blocks than records", ids, add(3, records+1), errRow},
		{"ids, more failures than records", ids, add(5, records), errRow},
		{"ids, a huge number of failures", ids, add(5, 1<<63), errRow},
		{"ids, a filter too large", ids, add(7, filterWords(filterBound)), errRow},
		{"ids, no order", ids, swap(guideHeadSize, 8), errRow},
		{"ids, no end", ids, cut, errMissing},
		{"ids, too long", ids, longer, errRow},
		{"ids, a part of the head", ids, func(guide []byte) []byte {
			return guide[:guideHeadSize-1]
		}, errRow},
		{"deadlines", timed, func(guide []byte) []byte { return guide }, nil},
		{"deadlines, more than failures", timed, add(8, records), errRow},
		{"deadlines, none", timed, add(8, -timed.lapses), errRow},
		{"deadlines, fewer", timed, add(8, ^uint64(0)), errMissing},
		{"deadlines, more listed", timed, add(9, 1), errMissing},
		{"deadlines, fewer listed", timed, add(9, ^uint64(0)), errRow},
		{"deadlines, more listed than there are", timed, add(9, timed.lapses), errRow},
		{"deadlines, a part of the head", timed, func(guide []byte) []byte {
			return guide[:guideHeadSize2-1]
		}, errRow},
		{"deadlines, no end", timed, cut, errMissing},
		{"deadlines, too long", timed, longer, errRow},
		{"deadlines, another version", timed, version, errRow},
		{"entries", entries, func(guide []byte) []byte { return guide }, nil},
		{"entries, another version", entries, version, errRow},
		{"entries, more records", entries, add(0, 1), errRow},
		{"entries, more bytes", entries, add(1, 1), errRow},
		{"entries, more chunks than records", entries, add(2, 1), errRow},
		{"entries, no chunk", entries, add(2, 1<<64-3), errRow},
		{"entries, keys beyond 4 GiB", entries, add(3, 1<<32), errRow},
		{"entries, a key of another length", entries, func(guide []byte) []byte {
			guide[keys-1]-- // the end of the last key
			return guide
		}, errRow},
		{"entries, a filter too large", entries, add(4, filterWords(entriesFilterBound)), errRow},
		{"entries, ends out of order", entries, swap(entriesGuideHeadSize, 4), errRow},
		{"entries, keys out of order", entries, swap(keys, 3), errRow},
		{"entries, a key twice", entries, func(guide []byte) []byte {
			copy(guide[keys:keys+3], guide[keys+3:])
			return guide
		}, errRow},
		{"entries, no end", entries, cut, errMissing},
		{"entries, too long", entries, longer, errMissing},
		{"entries, a part of the head", entries, func(guide []byte) []byte {
			return guide[:entriesGuideHeadSize-1]
		}, errRow},
	} {
		read := &run{kind: test.of.kind, records: test.of.records, bytes: test.of.bytes}
		encode, decode := test.of.encodeGuide, read.decodeGuide
		if test.of == entries {
			encode, decode = test.of.encodeEntriesGuide, read.decodeEntriesGuide
		}
		if err := decode(test.spoil(encode())); err != test.want {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if test.want == nil && (read.count != test.of.count ||
			!slices.Equal(read.failed, test.of.failed) ||
			!slices.Equal(read.lapsing, test.of.lapsing)) {
			t.Errorf("%s: %+v, want %+v", test.name, read.count, test.of.count)
		}
	}
}

// changeGuides changes the guides of a store's runs of ids that have one row, the oldest first.
func changeGuides(t *testing.T, dir string, named []*run, change func(guides []*run)) {
	t.Helper()
	var guides []*run
	edit(t, dir, func(_ *badger.WriteBatch, key, value []byte) error {
		at := slices.IndexFunc(named, func(r *run) bool {
			return bytes.Equal(key, r.guideKey(0))
		})
		if at < 0 {
			return nil
		}
		guides = append(guides, named[at])
		return named[at].decodeGuide(value[:len(value)-checksumSize])
	})
	change(guides)
	edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
		for _, r := range guides {
			if bytes.Equal(key, r.guideKey(0)) {
				return batch.Set(key, seal(key, r.encodeGuide()))
			}
		}
		return nil
	})
}

// TestWrongCountsOfIDs: wrong counts in the guides of ids are found behind, and at once by a check
// of everything, though together they are right.
func TestWrongCountsOfIDs(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes, options.fanOut = 1, 100 // several runs stay
	from, b := t.TempDir(), newBook(10)
	s := open(t, from, options)
	for range 6 {
		for range 5 {
			b.apply(t, s, 3)
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil { // a run of its own
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	closed := readFolder(t, from)
	named := idRuns(t, closed)
	for name, change := range map[string]func(guides []*run){
		"blocks": func(guides []*run) {
			guides[0].blocks--
			guides[1].blocks++
		},
		"transactions": func(guides []*run) {
			guides[0].transactions++
			guides[1].transactions--
		},
		"a failure too many": func(guides []*run) {
			guides[0].failures++
			guides[0].failed = append(guides[0].failed, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := inFolder(t, closed)
			var mine []*run
			for _, r := range named {
				clone := *r
				mine = append(mine, &clone)
			}
			changeGuides(t, dir, mine, change)
			all := options
			all.CheckAll = true
			if s, err := Open(inFolder(t, readFolder(t, dir)), testGenesis(), all); !errors.Is(err,
				ErrDamaged) {
				t.Errorf("checking all at once: %v", err)
				closeStore(t, s)
			}
			foundBehind(t, dir, options)
		})
	}
}

// TestChecksPassEveryChunk: what is left of large runs is checked in several looks, and each of
// their chunks is checked.
func TestChecksPassEveryChunk(t *testing.T) {
	t.Parallel()
	const accounts, transfers = 1100, chunksPerLook*chunkOf + 3*chunkOf
	options := small()
	options.unsettledBytes, options.chunkBytes, options.checkpointBlocks = 1, 60, 1
	dir, b := t.TempDir(), newBook(accounts)
	s := open(t, dir, options)
	b.apply(t, s, 0)
	var bundles []*ledger.Bundle
	for made := 0; made < transfers; {
		var some []ledger.Transaction
		for range 1000 {
			some, made = append(some, b.client.Transfer(b.client.Account("issuer"),
				b.account(made%accounts), 1)), made+1
		}
		bundles = append(bundles, b.client.Bundle(some...))
	}
	b.round++
	if _, err := s.Apply(1, b.round, [][]byte{ledgertest.Batch(2, bundles...)}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // so that the rows before are settled
		b.apply(t, s, 5)
	}
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, dir, options)
	mustCheck(t, s)
	defer func() { closeStore(t, s) }()
	largest := func(kind runKind) *run {
		return slices.MaxFunc(of(kind, s.runs.list()), func(one, other *run) int {
			return int(one.records) - int(other.records)
		})
	}
	ids, entries := largest(rowRun), largest(rowEntries)
	left := chunksOf(ids.records)
	if left <= chunksPerLook || entries.starts.len() <= 2*chunksPerLook {
		t.Fatalf("%d chunks of ids and %d of entries", left, entries.starts.len())
	}
	// The guide in memory lacks a chunk, and the check must find that.
	around := func(chunks int) []int {
		return []int{0, 1, chunksPerLook - 1, chunksPerLook, chunksPerLook + 1, chunks - 2,
			chunks - 1}
	}
	filterOf := func(chunk int) (filter idFilter) {
		filter = newIDFilter(entries.records)
		err := s.db.View(func(transaction *badger.Txn) error {
			all := newRangeCursor(transaction, entries, 0, nil, nil)
			for {
				more, err := all.advance()
				if err != nil || !more {
					return err
				}
				if id := filterKey(all.key); all.place-1 != chunk {
					filter.add(id[:])
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return filter
	}
	check := func(what string, chunk int, spoiled, right *run, err func() error) {
		t.Helper()
		before := s.runs.list()
		list := slices.Clone(before)
		list[slices.Index(list, right)] = spoiled
		s.runs.runs.Store(&list)
		if err := err(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s, chunk %d: %v", what, chunk, err)
		}
		s.runs.runs.Store(&before)
	}
	for _, chunk := range around(int(left)) {
		spoiled := *ids
		spoiled.fences = slices.Clone(ids.fences)
		spoiled.fences[chunk]++
		check("ids", chunk, &spoiled, ids, func() error {
			return s.checkIDsLeft(idsLeft{number: ids.number, before: left})
		})
	}
	for _, chunk := range append(around(entries.starts.len()), 2*chunksPerLook-1,
		2*chunksPerLook) {
		spoiled := *entries
		spoiled.filter = filterOf(chunk)
		check("entries", chunk, &spoiled, entries, func() error {
			return s.checkEntriesLeft(entries.number)
		})
	}
	if err := errors.Join(s.checkIDsLeft(idsLeft{number: ids.number, before: left}),
		s.checkEntriesLeft(entries.number)); err != nil {
		t.Errorf("what is right: %v", err)
	}
}

// TestAccountIsReadAgain: a read of a cold account that finds an older entry, because blocks
// touched the account meanwhile, reads again for as long as it finds another one.
func TestAccountIsReadAgain(t *testing.T) {
	t.Parallel()
	s, b := coldBook(t)
	path, right := b.client.Account("issuer"), s.runs.list()
	entries := of(rowEntries, right)
	if len(entries) < 3 {
		t.Fatalf("%d runs of entries", len(entries))
	}
	want, err := s.Account(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.runs.runs.Store(&right)
	for older := 1; older < len(entries); older++ {
		looks := 0
		see := func() { // of the runs of entries, one more at each look
			list := slices.Concat(of(rowRun, right), of(rowSteps, right),
				entries[:min(len(entries)-older+looks, len(entries))])
			s.runs.runs.Store(&list)
		}
		see()
		s.options.onLook = func() { looks++; see() }
		got, err := s.Account(path)
		s.options.onLook = func() {}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || looks != older+1 {
			t.Errorf("%d runs too few: %+v after %d looks: %v", older, got, looks, err)
		}
	}
}

// TestFilterKeys: what a filter takes for a key does not depend on the keys before.
func TestFilterKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var keys filterKeys
		for _, key := range rapid.SliceOf(rapid.StringMatching(`(acme:account-)?[ab\x00]{0,20}`)).
			Draw(t, "keys") {
			if got, want := keys.id([]byte(key)), filterKey([]byte(key)); got != want {
				t.Fatalf("%x for %q, want %x", got, key, want)
			}
		}
	})
}
