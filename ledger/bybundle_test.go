package ledger_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// partsOfPacked returns the leaves of a packed bundle whose names are all in one part, as
// docs/encoding.md tells: the head ends where the names begin, and the records are in parts of 64.
func partsOfPacked(content, names []byte, recordSize int) (leaves [][]byte) {
	at := bytes.Index(content, names)
	leaves = [][]byte{leafOf(content[:at]), leafOf(names)}
	for rest := content[at+len(names):]; len(rest) > 0; {
		size := min(len(rest), 64*recordSize)
		leaves, rest = append(leaves, leafOf(rest[:size])), rest[size:]
	}
	return leaves
}

// TestRootsOfDocs: the roots of a packed bundle and of a block by bundle are those of
// docs/encoding.md, made with nothing of package ledger's code.
func TestRootsOfDocs(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfers := func(count int) (all []ledger.Transaction) {
		for range count {
			all = append(all, client.Transfer("acme:a", "acme:b", 7))
		}
		return all
	}
	packed, whole := client.Packed(transfers(130)...), client.Bundle(transfers(3)...)
	cut, good := client.Bundle(transfers(3)...), client.Packed(transfers(2)...)
	names := []byte("\x00\x06acme:a\x05\x01b")
	root := rootOf(partsOfPacked(packed.Content(), names, 3))
	if found := packed.Root(); !bytes.Equal(found[:], root) {
		t.Errorf("the packed bundle has root %s, and should have %x", found, root)
	}
	for place, id := range packed.IDs() {
		if want := binary.BigEndian.AppendUint16(bytes.Clone(root[:30]),
			uint16(place)); !bytes.Equal(id[:], want) {
			t.Fatalf("transfer %d has id %s, and should have %x", place, id, want)
		}
	}
	if !bytes.Equal(packed.SigningMessage(), append([]byte("ledgerd/bundle/2\x00"), root...)) {
		t.Errorf("what is signed is %x", packed.SigningMessage())
	}
	block := ledgertest.Block(ledgertest.Genesis(), packed, whole, cut)
	short := ledger.Result{Code: ledger.InsufficientFunds, Item: 1}
	fail(&block.Bundles[0], 129, short)
	block.Unpacked[4].Result = short
	// The second transaction of the third bundle was in an earlier block.
	block.Bundles[2].Kept[1] = false
	block.Unpacked = slices.Delete(block.Unpacked, 4, 5)
	block.Unpacked[4].Result = short
	block.AddPacked(good.Seal(nil))
	block.Header.Transactions = uint32(block.Len())
	block.Complete(ledger.Hash{9})
	if block.Len() != 130+3+2+2 {
		t.Fatalf("%d transactions", block.Len())
	}
	var transactions, results, seals [][]byte
	first := 0
	for i, count := range []int{130, 3, 2, 2} {
		kind, root := byte(1), block.Bundles[i].Root
		var entries []ledger.Entry
		for at := range count {
			entries = append(entries, block.Entry(first+at))
		}
		var ids, outcomes [][]byte
		failed := false
		for _, entry := range entries {
			ids = append(ids, leafOf(entry.ID[:]))
			outcomes = append(outcomes, leafOf(binary.BigEndian.AppendUint32(
				[]byte{byte(entry.Result.Code)}, entry.Result.Item)))
			failed = failed || entry.Result.Code != 0
		}
		inBlock := rootOf(ids)
		var seal []byte
		if i == 0 || i == 3 {
			kind, inBlock, seal = 2, root[:], []byte{0, 0}
		}
		part := binary.BigEndian.AppendUint32([]byte{kind}, uint32(first))
		part = append(binary.BigEndian.AppendUint32(part, uint32(count)), inBlock...)
		transactions = append(transactions, leafOf(part))
		if failed {
			results = append(results, leafOf(part, []byte{1}, rootOf(outcomes)))
		} else {
			results = append(results, leafOf(part, []byte{0}))
		}
		seal = binary.AppendUvarint(seal, uint64(block.Bundles[i].Len()))
		signature := block.Bundles[i].Signatures[0]
		seal = append(append(seal, root[:]...), 1, 4)
		seal = append(append(append(seal, "acme"...), signature.Key[:]...), signature.Bytes[:]...)
		seals = append(seals, leafOf(seal))
		first += count
	}
	header := &block.Header
	for name, roots := range map[string][2][]byte{
		"transactions": {header.TransactionsRoot[:], rootOf(transactions)},
		"results":      {header.ResultsRoot[:], rootOf(results)},
		"bundles":      {header.BundlesRoot[:], rootOf(seals)},
	} {
		if !bytes.Equal(roots[0], roots[1]) {
			t.Errorf("the root over %s is %x, and should be %x", name, roots[0], roots[1])
		}
	}
	if encoded := header.Encode(); encoded[0] != 2 {
		t.Errorf("the header begins with %d", encoded[0])
	}
	for index := range block.Len() {
		if encoded := block.Proof(index).Encode(); encoded[0] != 3 {
			t.Fatalf("the proof begins with %d", encoded[0])
		}
	}
}

// TestPackedBundleInABlockHasOneForm: results of a packed bundle that are applied are not listed,
// no result is listed twice, nothing follows the content, and the number of transactions is the
// header's.
func TestPackedBundleInABlockHasOneForm(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	bundle := client.Packed(client.Transfer("acme:a", "acme:b", 7),
		client.Transfer("acme:a", "acme:b", 7))
	block := ledgertest.Block(ledgertest.Genesis(), bundle)
	good := block.Encode()
	content := bundle.Content()
	at := bytes.Index(good, content)
	rest := at + len(content)
	if _, err := ledger.DecodeBlock(good); err != nil || at < 0 || good[rest] != 0 {
		t.Fatal(err)
	}
	const applied, failed = "\x00\xff\xff\xff\xff", "\x09\x00\x00\x00\x00"
	length := func(of int) string { return string(binary.AppendUvarint(nil, uint64(of))) }
	replaced := func(from, to int, by string) []byte {
		return append(append(bytes.Clone(good[:from]), by...), good[to:]...)
	}
	for name, lie := range map[string][]byte{
		"applied":        replaced(rest, rest+1, "\x01\x00"+applied),
		"applied twice":  replaced(rest, rest+1, "\x02\x00"+applied+"\x01"+applied),
		"a third result": replaced(rest, rest+1, "\x01\x02"+failed),
		"a result twice": replaced(rest, rest+1, "\x02\x00"+failed+"\x00"+failed),
		"more than content": replaced(at-len(length(len(content))), rest,
			length(len(content)+1)+string(content)+"\x00"),
		"more than a bundle": append(bytes.Clone(good), 0),
		"more than the header says": replaced(ledger.HeaderSize-9, ledger.HeaderSize-8,
			"\x01"),
	} {
		if _, err := ledger.DecodeBlock(lie); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("block: %s: %v", name, err)
		}
	}
	outline := block.Outline()
	end := len(outline) - 1
	resized := func(outline []byte) []byte {
		binary.BigEndian.PutUint32(outline, uint32(len(outline)-ledger.OutlinePrefix))
		return outline
	}
	empty := append(bytes.Clone(outline), 1, 0, 0)
	empty[ledger.OutlinePrefix] = 2
	lies := map[string][]byte{
		"applied":        append(bytes.Clone(outline[:end]), "\x01\x00"+applied...),
		"a result twice": append(bytes.Clone(outline[:end]), "\x02\x00"+failed+"\x00"+failed...),
	}
	larger := bytes.Clone(outline)
	larger[ledger.OutlinePrefix+2] = 3 // transactions, of the two in the header
	lies["a third transfer"] = larger
	for name, lie := range lies {
		if _, err := ledger.DecodeOutline(&block.Header, resized(lie)); !errors.Is(err,
			ledger.ErrMalformed) {
			t.Errorf("outline: %s: %v", name, err)
		}
	}
	if _, err := ledger.DecodeOutline(&block.Header, resized(empty)); !errors.Is(err,
		ledger.ErrBlock) {
		t.Errorf("an empty bundle that is not in the block: %v", err)
	}
	empty[len(empty)-3] = 2 // packed
	if _, err := ledger.DecodeOutline(&block.Header, resized(empty)); !errors.Is(err,
		ledger.ErrMalformed) {
		t.Errorf("an empty packed bundle: %v", err)
	}
	header := block.Header
	header.Transactions = ledger.MaxBlockTransactions + 1
	if _, err := ledger.DecodeOutline(&header, outline); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("an outline of too many transactions: %v", err)
	}
	header.Transactions = 3
	if _, err := ledger.DecodeOutline(&header, outline); !errors.Is(err, ledger.ErrBlock) {
		t.Errorf("an outline of fewer transactions: %v", err)
	}
}
