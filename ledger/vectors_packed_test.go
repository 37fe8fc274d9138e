package ledger_test

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// packedVectors are the content of packed.json.
type packedVectors struct {
	Bundles []packedBundleVector `json:"bundles"`
	// Shown are what shows a transfer of a packed bundle.
	Shown []vector `json:"shown"`
}

// byBundleVectors are the content of bybundle.json. Block 1 has both kinds of bundles.
type byBundleVectors struct {
	Blocks []blockByBundleVector `json:"blocks"`
	Proofs []vector              `json:"proofs"`
}

// packedBundleVector has the parts that are the leaves' data under the root.
type packedBundleVector struct {
	bundleVector
	TreeParts parts `json:"tree_parts"`
}

// blockByBundleVector has the data of the leaves as well.
type blockByBundleVector struct {
	blockVector
	TransactionLeafParts []parts `json:"transaction_leaf_parts"`
	ResultLeafParts      []parts `json:"result_leaf_parts"`
}

func (e *packedExamples) vectors(t *testing.T) (v packedVectors) {
	t.Helper()
	for _, bundle := range []signedBundle{e.few, e.many} {
		v.Bundles = append(v.Bundles, packedVector(t, bundle))
	}
	for _, each := range []struct {
		bundle signedBundle
		place  int
	}{{e.few, 2}, {e.many, 62}, {e.many, 64}} {
		v.Shown = append(v.Shown, shownVector(t, each.bundle, each.place))
	}
	return v
}

func (e *packedExamples) byBundleVectors(t *testing.T) byBundleVectors {
	t.Helper()
	v := byBundleVectors{Blocks: e.blockVectors(t)}
	for _, each := range []struct {
		name         string
		block, index int
	}{
		{"block 1: a body beside a dropped one", 0, 1},
		{"block 1: the packed transfer that failed", 0, 3},
		{"block 1: a packed transfer beside one that failed", 0, 4},
		{"block 2: a packed transfer in a bundle that was applied", 1, 64},
	} {
		v.Proofs = append(v.Proofs, e.proofVector(t, each.name, each.block, each.index))
	}
	return v
}

// packedExamples are packed bundles and blocks by bundle of one book.
type packedExamples struct {
	genesis   *ledger.Genesis
	few, many signedBundle
	blocks    []exampleBlock
}

func newPackedExamples(t *testing.T) *packedExamples {
	t.Helper()
	of := newExamples(t)
	e := &packedExamples{genesis: of.genesis}
	transfer := func(sequence uint64, from, to, asset, amount string) ledger.Transaction {
		return ledger.Transaction{Ledger: of.genesis.Book(), Signer: "alice", LastValid: 1000,
			Nonce: ledger.Nonce{Stream: 7, Sequence: sequence},
			Postings: []ledger.Posting{posting(from, asset, "-"+amount),
				posting(to, asset, amount)}}
	}
	signers := []signer{{"alice", "alice"}}
	e.few = signedBundle{name: "three transfers of two assets", signers: signers, packed: true,
		transactions: []ledger.Transaction{
			transfer(300, "alice:cash", "alice:cards/1", "EUR", "5"),
			transfer(301, "alice:cards/1", "bob:cash", "unit", "300"),
			transfer(302, "bob:cash", "alice:cash", "EUR", "65536")}}
	e.few.signers = append(signers[:1:1], signer{"bob", "bob"})
	e.many = signedBundle{name: "names and transfers of two parts each", signers: signers,
		packed: true}
	for i := range 65 {
		e.many.transactions = append(e.many.transactions, transfer(uint64(303+i), "alice:cash",
			fmt.Sprintf("bob:%03d", i), "EUR", fmt.Sprint(1+i)))
	}
	e.makeBlocks(of.three)
	return e
}

// makeBlocks makes block 1 of bodies, one of them dropped, and of packed transfers, one of which
// failed, and block 2 of the many transfers.
func (e *packedExamples) makeBlocks(bodies signedBundle) {
	applied := outcome{result: ledger.Result{Code: ledger.Applied, Item: ledger.NoItem}}
	short := outcome{result: ledger.Result{Code: ledger.InsufficientFunds, Item: 0}}
	digest := ledger.Hash(hashOf([]byte("the state after the block")))
	all := make([]outcome, len(e.many.transactions))
	for i := range all {
		all[i] = applied
	}
	e.blocks = []exampleBlock{
		{"block 1, with a dropped body and a failed packed transfer",
			ledger.Header{Height: 1, Epoch: 2, Round: 3, Time: 1_700_000_000_123,
				StateDigest: digest, Total: 5, ByBundle: true},
			[]sealedBundle{{signedBundle: bodies, outcomes: []outcome{applied, {dropped: true},
				applied}}, {signedBundle: e.few, outcomes: []outcome{applied, short, applied}}}},
		{"block 2, in which all was applied",
			ledger.Header{Height: 2, Epoch: 2, Round: 4, Time: 1_700_000_000_124,
				StateDigest: digest, Total: 70, ByBundle: true},
			[]sealedBundle{{signedBundle: e.many, outcomes: all}}},
	}
}

// previous returns the hash of the block before block i.
func (e *packedExamples) previous(i int) []byte {
	if i == 0 {
		hash := e.genesis.Hash()
		return hash[:]
	}
	return fromHex(e.blocks[i-1].vector(e.previous(i - 1)).Hash)
}

// packedTable is what the records of a packed bundle refer to, and the width of its amounts.
type packedTable struct {
	names, assets []string
	width         int
}

// number returns the number of a name or asset, which it adds if it is new.
func number(list *[]string, name string) int {
	for i, each := range *list {
		if each == name {
			return i
		}
	}
	*list = append(*list, name)
	return len(*list) - 1
}

func (b signedBundle) packedTable() (table packedTable) {
	for i := range b.transactions {
		from, to := &b.transactions[i].Postings[0], &b.transactions[i].Postings[1]
		number(&table.names, string(from.Account))
		number(&table.names, string(to.Account))
		number(&table.assets, string(to.Asset))
		table.width = max(table.width, len(decimal(to.Amount.String()).Bytes()))
	}
	return table
}

// packedPart is a part of a packed bundle, a leaf of its tree.
type packedPart struct {
	name  string
	parts parts
}

// packedParts are the head, the parts with names, and the parts with records.
func (b signedBundle) packedParts() []packedPart {
	table := b.packedTable()
	all := []packedPart{{"head", b.packedHead(table)}}
	for from := 0; from < len(table.names); from += 64 {
		to := min(from+64, len(table.names))
		all = append(all, packedPart{fmt.Sprintf("names %d to %d", from, to-1),
			packedNames(table.names[from:to], from)})
	}
	for from := 0; from < len(b.transactions); from += 64 {
		to := min(from+64, len(b.transactions))
		all = append(all, packedPart{fmt.Sprintf("records %d to %d", from, to-1),
			b.packedRecords(table, from, to)})
	}
	return all
}

func (b signedBundle) packedHead(table packedTable) (p parts) {
	first := &b.transactions[0]
	p.add("version", 3)
	p.add("ledger", first.Ledger[:]...)
	p.string("signer", []byte(first.Signer))
	p.uvarint("nonce, stream", first.Nonce.Stream)
	p.uvarint("nonce, sequence of the first transfer", first.Nonce.Sequence)
	p.uvarint("last valid height", uint64(first.LastValid))
	p.uvarint("assets, count", uint64(len(table.assets)))
	for i, asset := range table.assets {
		p.string(fmt.Sprintf("asset %d", i), []byte(asset))
	}
	p.uvarint("names, count", uint64(len(table.names)))
	p.uvarint("transfers, count", uint64(len(b.transactions)))
	p.add("bytes of an amount", byte(table.width))
	return p
}

// packedNames are the names of a part, of which the first has a number.
func packedNames(names []string, first int) (p parts) {
	before := ""
	for i, name := range names {
		common := 0
		for common < len(name) && common < len(before) && name[common] == before[common] {
			common++
		}
		of := fmt.Sprintf("name %d, %s", first+i, name)
		p.uvarint(of+", in common with the name before", uint64(common))
		p.string(of+", rest", []byte(name[common:]))
		before = name
	}
	return p
}

func (b signedBundle) packedRecords(table packedTable, from, to int) (p parts) {
	size := 1
	if len(table.names) > 256 {
		size = 2
	}
	for i := from; i < to; i++ {
		gives, receives := &b.transactions[i].Postings[0], &b.transactions[i].Postings[1]
		of := fmt.Sprintf("transfer %d, ", i)
		p.big(of+"name that gives", uint64(number(&table.names, string(gives.Account))), size)
		p.big(of+"name that receives", uint64(number(&table.names, string(receives.Account))), size)
		if len(table.assets) > 1 {
			p.add(of+"asset", byte(number(&table.assets, string(gives.Asset))))
		}
		magnitude := make([]byte, table.width)
		p.add(of+"amount "+receives.Amount.String(),
			decimal(receives.Amount.String()).FillBytes(magnitude)...)
	}
	return p
}

// packedIDs is signedBundle.ids of a packed bundle.
func (b signedBundle) packedIDs() (ids, leaves [][]byte) {
	for _, part := range b.packedParts() {
		leaves = append(leaves, leafOf(part.parts.bytes()))
	}
	root := rootOf(leaves)
	for i := range b.transactions {
		ids = append(ids, append(append([]byte(nil), root[:30]...), bigEndian(uint64(i), 2)...))
	}
	return ids, leaves
}

// content returns a packed bundle without its signatures.
func (b signedBundle) content() (p parts) {
	for _, part := range b.packedParts() {
		p.nested(part.name, part.parts)
	}
	return p
}

func packedVector(t *testing.T, b signedBundle) packedBundleVector {
	t.Helper()
	ids, leaves := b.ids()
	p := b.content()
	b.signaturesParts(&p)
	v := packedBundleVector{bundleVector: bundleVector{vector{Name: b.name, Parts: p,
		Encoded: p.hex(), Signed: hex.EncodeToString(b.message())}, hexes(ids), hexes(leaves),
		hex.EncodeToString(rootOf(leaves))}}
	for _, each := range b.packedParts() {
		v.TreeParts = append(v.TreeParts, part{each.name, each.parts.hex()})
	}
	bundle := b.bundle(t)
	compareBundle(t, &v.bundleVector, bundle)
	for i := range bundle.Len() {
		id := bundle.ID(i)
		same(t, fmt.Sprintf("%s, id %d", b.name, i), v.IDs[i], id[:])
	}
	return v
}

// shownParts are what shows the transfer at a place of a packed bundle.
func (b signedBundle) shownParts(place int) (p parts) {
	table, all := b.packedTable(), b.packedParts()
	t := &b.transactions[place]
	namesOf := func(account ledger.AccountPath) int {
		return 1 + number(&table.names, string(account))/64
	}
	gives, receives := namesOf(t.Postings[0].Account), namesOf(t.Postings[1].Account)
	add := func(index int) { p.string(all[index].name, all[index].parts.bytes()) }
	p.add("version", 8)
	add(0)
	p.uvarint("place", uint64(place))
	add(gives)
	if receives == gives {
		p.uvarint("the other name is in the same part", 0)
	} else {
		add(receives)
	}
	add(1 + (len(table.names)+63)/64 + place/64)
	return p
}

// shownPaths are the paths of the parts in what shows a transfer.
func (b signedBundle) shownPaths(place int) (paths [][]byte) {
	_, leaves := b.ids()
	table := b.packedTable()
	t := &b.transactions[place]
	add := func(index int) { paths = append(paths, pathOf(leaves, index)...) }
	gives := number(&table.names, string(t.Postings[0].Account)) / 64
	receives := number(&table.names, string(t.Postings[1].Account)) / 64
	add(0)
	add(1 + gives)
	if receives != gives {
		add(1 + receives)
	}
	add(1 + (len(table.names)+63)/64 + place/64)
	return paths
}

func shownVector(t *testing.T, b signedBundle, place int) vector {
	t.Helper()
	ids, _ := b.ids()
	p := b.shownParts(place)
	v := vector{Name: fmt.Sprintf("%s: transfer %d", b.name, place), Parts: p, Encoded: p.hex(),
		Hash: hex.EncodeToString(ids[place])}
	same(t, v.Name, v.Encoded, b.bundle(t).Body(place))
	decoded, err := ledger.DecodeBody(fromHex(v.Encoded))
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	if !alike(decoded, &b.transactions[place]) {
		t.Errorf("%s: it is read as %+v", v.Name, decoded)
	}
	return v
}

// kept returns the places of a bundle's transactions that are in the block.
func (b sealedBundle) kept() (places []int) {
	for i, each := range b.outcomes {
		if !each.dropped {
			places = append(places, i)
		}
	}
	return places
}

// keptLeaves are the leaves over the ids of the transactions of a bundle of bodies that are in the
// block.
func (b sealedBundle) keptLeaves() (leaves [][]byte) {
	ids, _ := b.ids()
	for _, place := range b.kept() {
		leaves = append(leaves, leafOf(ids[place]))
	}
	return leaves
}

// outcomeLeaves are the leaves over the results, or nil if all transactions were applied.
func (b sealedBundle) outcomeLeaves() (leaves [][]byte) {
	failed := false
	for _, place := range b.kept() {
		result := b.outcomes[place].result
		failed = failed || result.Code != ledger.Applied
		var p parts
		resultParts(&p, "", result)
		leaves = append(leaves, leafOf(p.bytes()))
	}
	if !failed {
		return nil
	}
	return leaves
}

// leafParts are the data of the bundle's leaf in the trees over the transactions and the results.
func (b sealedBundle) leafParts(first int) (transactions, results parts) {
	var p parts
	if b.packed {
		_, leaves := b.ids()
		p.add("kind: packed", 2)
		p.big("index of the first transaction", uint64(first), 4)
		p.big("transactions in the block", uint64(len(b.kept())), 4)
		p.add("root of the bundle", rootOf(leaves)...)
	} else {
		p.add("kind: bodies", 1)
		p.big("index of the first transaction", uint64(first), 4)
		p.big("transactions in the block", uint64(len(b.kept())), 4)
		p.add("root over the ids in the block", rootOf(b.keptLeaves())...)
	}
	results = append(results, p...)
	outcomes := b.outcomeLeaves()
	results.bool("not all were applied", outcomes != nil)
	if outcomes != nil {
		results.add("root over the results", rootOf(outcomes)...)
	}
	return p, results
}

// leavesByBundle are the leaves' data in the trees over the transactions and the results of a block
// by bundle, and the number of its transactions.
func (b exampleBlock) leavesByBundle() (transactions, results []parts, count int) {
	for _, sealed := range b.bundles {
		of, outcomes := sealed.leafParts(count)
		transactions, results = append(transactions, of), append(results, outcomes)
		count += len(sealed.kept())
	}
	return transactions, results, count
}

func leavesOf(data []parts) (leaves [][]byte) {
	for _, each := range data {
		leaves = append(leaves, leafOf(each.bytes()))
	}
	return leaves
}

// packedInBlock are a packed bundle in a block, with what is not applied.
func (b sealedBundle) packedInBlock(p *parts, of string) {
	p.add(of+"mark of a packed bundle", 0, 0)
	p.string(of+"bundle without signatures", b.content().bytes())
	var failed []int
	for place, each := range b.outcomes {
		if each.result.Code != ledger.Applied {
			failed = append(failed, place)
		}
	}
	p.uvarint(of+"results that are not applied, count", uint64(len(failed)))
	for _, place := range failed {
		p.uvarint(of+"place", uint64(place))
		resultParts(p, of, b.outcomes[place].result)
	}
}

func (e *packedExamples) blockVectors(t *testing.T) (all []blockByBundleVector) {
	t.Helper()
	for i, each := range e.blocks {
		transactions, results, _ := each.leavesByBundle()
		v := each.vector(e.previous(i))
		compareBlock(t, &v, each.block(t, ledger.Hash(e.previous(i))))
		all = append(all, blockByBundleVector{v, transactions, results})
	}
	return all
}

// proofByBundle are the proof of an entry of a block by bundle.
func (b exampleBlock) proofByBundle(previous []byte, index int) (p parts) {
	transactions, results, count := b.leavesByBundle()
	bundle, first := 0, 0
	for index-first >= len(b.bundles[bundle].kept()) {
		first += len(b.bundles[bundle].kept())
		bundle++
	}
	sealed := b.bundles[bundle]
	within := index - first
	place := sealed.kept()[within]
	ids, leaves := sealed.ids()
	header := b.headerParts(previous).bytes()
	body, path, bundlePath := sealed.shownParts, [][]byte(nil), [][]byte(nil)
	if sealed.packed {
		bundlePath = sealed.shownPaths(place)
	} else {
		body = func(place int) parts { return transactionParts(&sealed.transactions[place]) }
		path, bundlePath = pathOf(sealed.keptLeaves(), within), pathOf(leaves, place)
	}
	p.add("version", 3)
	p.string("body", body(place).bytes())
	p.add("id", ids[place]...)
	p.string("header", header)
	p.add("hash of the block", hashOf(domain("ledgerd/block/1"), header)...)
	p.big("index in the block", uint64(index), 4)
	p.big("transactions in the block", uint64(count), 4)
	p.path("path from the id to the root in the bundle's leaf", path)
	resultParts(&p, "", sealed.outcomes[place].result)
	outcomes := sealed.outcomeLeaves()
	if outcomes == nil {
		p.path("path from the result", nil)
	} else {
		p.path("path from the result to the root over the bundle's results",
			pathOf(outcomes, within))
	}
	p.big("placing, place of the bundle in the block", uint64(bundle), 4)
	p.big("placing, bundles in the block", uint64(len(b.bundles)), 4)
	p.big("placing, index of the bundle's first transaction", uint64(first), 4)
	p.big("placing, its transactions in the block", uint64(len(sealed.kept())), 4)
	p.path("placing, path to the transactions root", pathOf(leavesOf(transactions), bundle))
	p.path("placing, path to the results root", pathOf(leavesOf(results), bundle))
	p.bool("placing, all were applied", outcomes == nil)
	p.big("index in the bundle", uint64(place), 4)
	p.big("transactions in the bundle", uint64(len(ids)), 4)
	p.path("bundle path", bundlePath)
	p.add("root of the bundle", rootOf(leaves)...)
	sealed.signaturesParts(&p)
	return p
}

func (e *packedExamples) proofVector(t *testing.T, name string, block, index int) vector {
	t.Helper()
	p := e.blocks[block].proofByBundle(e.previous(block), index)
	v := vector{Name: name, Parts: p, Encoded: p.hex()}
	made := e.blocks[block].block(t, ledger.Hash(e.previous(block))).Proof(index)
	compareProof(t, &v, made)
	return v
}
