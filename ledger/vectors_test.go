package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// vectorsFolder has the test vectors that docs/encoding.md describes. Programs in other languages
// check themselves against them.
const vectorsFolder = "testdata/vectors/"

// The vectors are examples of every encoding, each split into named parts. The parts are made here,
// by the words of docs/encoding.md, with nothing of package ledger's encoders; the test compares
// what they make together with what the package makes.

// basicVectors are the content of basics.json.
type basicVectors struct {
	About   []string             `json:"about"`
	Keys    []keyVector          `json:"keys"`
	Values  []valueVector        `json:"values"`
	Geneses []vector             `json:"geneses"`
	Homes   map[string][]shardOf `json:"homes"`
}

// transactionVectors are the content of transactions.json.
type transactionVectors struct {
	Transactions []vector       `json:"transactions"`
	Bundles      []bundleVector `json:"bundles"`
	Carried      vector         `json:"carried"`
	Batches      []vector       `json:"batches"`
}

// blockVectors are the content of blocks.json.
type blockVectors struct {
	Blocks       []blockVector `json:"blocks"`
	Proofs       []vector      `json:"proofs"`
	Statements   []vector      `json:"statements"`
	Certificates []vector      `json:"certificates"`
	Certified    []vector      `json:"certified_proofs"`
}

type keyVector struct {
	Name   string `json:"name"`
	Seed   string `json:"seed"`
	Public string `json:"public"`
}

type valueVector struct {
	Kind    string `json:"kind"`
	Value   string `json:"value"`
	Encoded string `json:"encoded"`
}

// vector is an encoding, and what is computed from it.
type vector struct {
	Name    string `json:"name"`
	Parts   parts  `json:"parts"`
	Encoded string `json:"encoded"`
	// Signed is the message of the signature in Encoded.
	Signed string `json:"signed,omitempty"`
	// Hash is the genesis' hash, the transaction's id, the carried bundle's hash, or that of an
	// account's leaf; Book is the book's of a genesis.
	Hash string `json:"hash,omitempty"`
	Book string `json:"book,omitempty"`
}

type bundleVector struct {
	vector
	IDs    []string `json:"ids"`
	Leaves []string `json:"leaves"`
	Root   string   `json:"root"`
}

type blockVector struct {
	Name              string   `json:"name"`
	Header            parts    `json:"header_parts"`
	EncodedHeader     string   `json:"header"`
	Hash              string   `json:"hash"`
	TransactionLeaves []string `json:"transaction_leaves"`
	ResultLeaves      []string `json:"result_leaves"`
	BundleLeaves      []string `json:"bundle_leaves"`
	Parts             parts    `json:"parts"`
	Encoded           string   `json:"encoded"`
}

type shardOf struct {
	Organisation string `json:"organisation"`
	Shard        int    `json:"shard"`
}

// part is some bytes of an encoding and their meaning.
type part struct{ meaning, hex string }

// MarshalJSON returns the meaning and the bytes as a list of two.
func (p part) MarshalJSON() ([]byte, error) { return json.Marshal([]string{p.meaning, p.hex}) }

type parts []part

func (p *parts) add(meaning string, content ...byte) {
	*p = append(*p, part{meaning, hex.EncodeToString(content)})
}

// nested adds the parts of another encoding, with a name before each.
func (p *parts) nested(name string, inner parts) {
	for _, each := range inner {
		*p = append(*p, part{name + ": " + each.meaning, each.hex})
	}
}

func (p parts) hex() string {
	var text strings.Builder
	for _, each := range p {
		text.WriteString(each.hex)
	}
	return text.String()
}

func (p parts) bytes() []byte {
	content, err := hex.DecodeString(p.hex())
	if err != nil {
		panic(err)
	}
	return content
}

func (p *parts) uvarint(meaning string, value uint64) { p.add(meaning, uvarint(value)...) }

func (p *parts) big(meaning string, value uint64, size int) {
	p.add(meaning, bigEndian(value, size)...)
}

func (p *parts) string(meaning string, content []byte) {
	p.uvarint(meaning+", length", uint64(len(content)))
	if len(content) > 0 {
		p.add(meaning, content...)
	}
}

func (p *parts) path(meaning string, hashes [][]byte) {
	p.uvarint(meaning+", count", uint64(len(hashes)))
	for i, hash := range hashes {
		p.add(fmt.Sprintf("%s, hash %d", meaning, i), hash...)
	}
}

func (p *parts) bool(meaning string, value bool) {
	if value {
		p.add(meaning, 1)
	} else {
		p.add(meaning, 0)
	}
}

// uvarint returns LEB128: seven bits a byte, the lowest first, 0x80 on all but the last.
func uvarint(value uint64) (to []byte) {
	for ; value >= 0x80; value >>= 7 {
		to = append(to, byte(value&0x7f)|0x80)
	}
	return append(to, byte(value))
}

func bigEndian(value uint64, size int) []byte {
	to := make([]byte, size)
	for i := range to {
		to[size-1-i] = byte(value >> (8 * i))
	}
	return to
}

// amount returns a byte of sign and length, and the magnitude.
func amount(value *big.Int) []byte {
	magnitude := value.Bytes()
	head := byte(len(magnitude))
	if value.Sign() < 0 {
		head |= 0x80
	}
	return append([]byte{head}, magnitude...)
}

func decimal(text string) *big.Int {
	value, good := new(big.Int).SetString(text, 10)
	if !good {
		panic(text)
	}
	return value
}

func hashOf(content ...[]byte) []byte {
	sum := sha256.Sum256(bytes.Join(content, nil))
	return sum[:]
}

func domain(name string) []byte { return append([]byte(name), 0) }

func leafOf(content ...[]byte) []byte { return hashOf(append([][]byte{{0}}, content...)...) }

// rootOf returns the root as RFC 6962 defines it: the left subtree has the largest power of two
// below the number of leaves.
func rootOf(leaves [][]byte) []byte {
	switch len(leaves) {
	case 0:
		return hashOf()
	case 1:
		return leaves[0]
	}
	split := splitOf(len(leaves))
	return hashOf([]byte{1}, rootOf(leaves[:split]), rootOf(leaves[split:]))
}

func splitOf(leaves int) int {
	split := 1
	for 2*split < leaves {
		split *= 2
	}
	return split
}

// pathOf returns the siblings from a leaf up to the root, as RFC 6962 defines them.
func pathOf(leaves [][]byte, index int) [][]byte {
	if len(leaves) == 1 {
		return nil
	}
	split := splitOf(len(leaves))
	if index < split {
		return append(pathOf(leaves[:split], index), rootOf(leaves[split:]))
	}
	return append(pathOf(leaves[split:], index-split), rootOf(leaves[:split]))
}

func hexes(all [][]byte) []string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = hex.EncodeToString(all[i])
	}
	return texts
}

// membersParts are the members of a shard: their number, and name, key and address of each.
func membersParts(p *parts, of string, members []ledger.Member) {
	p.uvarint(of+"members, count", uint64(len(members)))
	for i, member := range members {
		memberParts(p, fmt.Sprintf("%smember %d", of, i), member)
	}
}

func memberParts(p *parts, of string, member ledger.Member) {
	p.string(of+", name", []byte(member.Name))
	p.string(of+", key", member.Key)
	p.string(of+", address", []byte(member.Address))
}

func quotasParts(p *parts, quotas ledger.Quotas) {
	for i, number := range quotas.Numbers() {
		p.uvarint("quota of "+ledger.QuotaNames[i], *number)
	}
}

func genesisVector(name string, version byte, g *ledger.Genesis) vector {
	var p parts
	p.add("version", version)
	p.string("chain", []byte(g.Chain))
	p.big("time", uint64(g.Time), 8)
	if version%2 == 0 {
		p.uvarint("shards, count", uint64(len(g.Shards)))
		for i, members := range g.Shards {
			p.uvarint(fmt.Sprintf("shard %d, parent", i), uint64(g.Tree[i]))
			membersParts(&p, fmt.Sprintf("shard %d, ", i), members)
		}
	} else {
		membersParts(&p, "", g.Members)
	}
	p.uvarint("operators, count", uint64(len(g.Operators)))
	for i := range g.Operators {
		p.add(fmt.Sprintf("operator %d, key", i), g.Operators[i][:]...)
	}
	p.bool("registration by operator", g.RegistrationByOperator)
	if version >= 3 {
		p.uvarint("threshold of operators", uint64(max(1, g.OperatorThreshold)))
	}
	quotas := version == 5 || version == 6
	if version >= 9 {
		p.uvarint("version of the chain", uint64(g.Version))
		p.bool("vouched crossings", g.VouchedCrossings)
	}
	if version >= 8 {
		quotas = g.Quotas != ledger.Quotas{}
		p.bool("quotas follow", quotas)
	}
	if quotas {
		quotasParts(&p, g.Quotas)
	}
	v := vector{Name: name}
	book := hashOf(domain("ledgerd/book/1"), p.bytes())
	if version%2 == 0 {
		p.uvarint("shard of this chain", uint64(g.Shard))
	}
	hash := hashOf(domain("ledgerd/genesis/1"), p.bytes())
	if version%2 == 1 {
		book = hash
	}
	v.Parts, v.Encoded = p, p.hex()
	v.Hash, v.Book = hex.EncodeToString(hash), hex.EncodeToString(book)
	return v
}

// transactionParts are the parts of a body, by its kind.
func transactionParts(t *ledger.Transaction) (p parts) {
	begin := func(version byte, signer bool) {
		p.add("version", version)
		p.add("ledger", t.Ledger[:]...)
		if signer {
			p.string("signer", []byte(t.Signer))
		}
	}
	nonce := func() {
		p.uvarint("nonce, stream", t.Nonce.Stream)
		p.uvarint("nonce, sequence", t.Nonce.Sequence)
	}
	switch {
	case t.Verdict != nil:
		begin(3, false)
		verdictParts(&p, "", t.Verdict)
		return p
	case t.Change != nil:
		begin(2, false)
		nonce()
		p.uvarint("last valid height", uint64(t.LastValid))
		changeParts(&p, t.Change)
	case t.Policy != nil:
		begin(4, true)
		nonce()
		policyParts(&p, &t.Policy.Policy)
	case t.Asset != nil:
		begin(13, true)
		nonce()
		assetParts(&p, t.Asset)
	case t.Hold != nil, t.HoldEnd != nil:
		holdParts(&p, t, begin, nonce)
	case t.Details != nil:
		begin(17, true)
		nonce()
		detailsParts(&p, t)
	case t.Schedules():
		scheduleParts(&p, t, begin, nonce)
	case t.Account != nil:
		begin(16, true)
		nonce()
		accountParts(&p, t.Account)
	case t.Charter != nil:
		version := byte(5)
		switch {
		case t.Charter.Version > 1:
			version = 7
		case t.Charter.Quotas != ledger.Quotas{}:
			version = 6
		}
		begin(version, false)
		nonce()
		charterParts(&p, &t.Charter.Charter)
	case t.Cancellation != nil:
		begin(10, true)
		nonce()
		p.uvarint("deadline", uint64(t.Deadline))
		p.add("id of the other transaction", t.Cancellation.Transaction[:]...)
		p.uvarint("shard", uint64(t.Cancellation.Shard))
	case t.Book != nil:
		begin(11, false)
		nonce()
		p.uvarint("number", t.Book.Number)
		if change := t.Book.Rehang; change != nil {
			p.add("kind: a change of the tree", 4)
			p.uvarint("shard", uint64(change.Shard))
			p.uvarint("parent", uint64(change.Parent))
			break
		}
		p.add("kind: a settlement with a lost shard", 3)
		p.uvarint("shard", uint64(t.Book.Loss.Shard))
	default:
		version := byte(1)
		if t.Deadline != 0 {
			version = 9
		}
		begin(version, true)
		nonce()
		p.uvarint("last valid height", uint64(t.LastValid))
		if t.Deadline != 0 {
			p.uvarint("deadline", uint64(t.Deadline))
		}
		entryParts(&p, t)
	}
	p.string("note", t.Note)
	return p
}

// entryParts are the lists of a client's transaction.
func entryParts(p *parts, t *ledger.Transaction) {
	p.uvarint("registrations, count", uint64(len(t.Registrations)))
	for i, each := range t.Registrations {
		of := fmt.Sprintf("registration %d, ", i)
		p.string(of+"organisation", []byte(each.Name))
		p.uvarint(of+"keys, count", uint64(len(each.Keys)))
		for k := range each.Keys {
			p.add(fmt.Sprintf("%skey %d", of, k), each.Keys[k][:]...)
		}
		p.bool(of+"pinned", each.Pinned)
		p.uvarint(of+"shard", uint64(each.Shard))
	}
	itemParts(p, t)
}

func itemParts(p *parts, t *ledger.Transaction) {
	p.uvarint("openings, count", uint64(len(t.Openings)))
	for i, each := range t.Openings {
		of := fmt.Sprintf("opening %d, ", i)
		p.string(of+"account", []byte(each.Account))
		p.bool(of+"issuer", each.Issuer)
		p.string(of+"alias", []byte(each.Alias))
	}
	p.uvarint("postings, count", uint64(len(t.Postings)))
	for i, each := range t.Postings {
		of := fmt.Sprintf("posting %d, ", i)
		p.string(of+"account", []byte(each.Account))
		p.string(of+"asset", []byte(each.Asset))
		p.add(of+"amount "+each.Amount.String(), amount(decimal(each.Amount.String()))...)
	}
	p.uvarint("records, count", uint64(len(t.Records)))
	for i, each := range t.Records {
		of := fmt.Sprintf("record %d, ", i)
		p.string(of+"key", []byte(each.Key))
		p.string(of+"value", each.Value)
	}
}

func changeParts(p *parts, c *ledger.MembershipChange) {
	p.add("kind: "+c.Kind.String(), byte(c.Kind))
	switch c.Kind {
	case ledger.ChangeJoin:
		memberParts(p, "member", c.Member)
	case ledger.ChangeLeave:
		p.uvarint("index of the member", uint64(c.Index))
	case ledger.ChangeAdmit:
		p.uvarint("index of the member", uint64(c.Index))
		p.add("disk", c.Disk[:]...)
	case ledger.ChangeEngine:
		p.string("engine", []byte(c.Engine))
	}
}

func policyParts(p *parts, policy *ledger.Policy) {
	p.uvarint("number of the policy", policy.Number)
	p.uvarint("keys, count", uint64(len(policy.Keys)))
	for i, each := range policy.Keys {
		p.add(fmt.Sprintf("key %d", i), each.Key[:]...)
		p.add(fmt.Sprintf("key %d, role %s", i, each.Role), byte(each.Role))
	}
	p.uvarint("threshold", uint64(policy.Threshold))
	p.uvarint("limits, count", uint64(len(policy.Limits)))
	for i, each := range policy.Limits {
		of := fmt.Sprintf("limit %d, ", i)
		p.string(of+"asset", []byte(each.Asset))
		p.add(of+"above "+each.Above.String(), amount(decimal(each.Above.String()))...)
		p.uvarint(of+"signatures", uint64(each.Signatures))
	}
	p.bool("other assets are refused", policy.RefuseAssets)
	p.uvarint("assets, count", uint64(len(policy.Assets)))
	for i, each := range policy.Assets {
		p.string(fmt.Sprintf("asset %d", i), []byte(each))
	}
}

func assetParts(p *parts, asset *ledger.AssetChange) {
	p.string("asset", []byte(asset.Asset))
	p.uvarint("number of the change", asset.Number)
	p.add("decimals", asset.Decimals)
	p.add("supply: "+asset.Supply.String(), byte(asset.Supply))
	p.add("cap "+asset.Cap.String(), amount(decimal(asset.Cap.String()))...)
	p.bool("the issuance is closed", asset.Closed)
	p.uvarint("issuers, count", uint64(len(asset.Issuers)))
	for i, each := range asset.Issuers {
		of := fmt.Sprintf("issuer %d, ", i)
		p.string(of+"organisation", []byte(each.Organisation))
		p.add(of+"allowance "+each.Allowance.String(),
			amount(decimal(each.Allowance.String()))...)
		p.bool(of+"withdrawn", each.Withdrawn)
	}
}

func charterParts(p *parts, charter *ledger.Charter) {
	p.uvarint("number of the charter", charter.Number)
	p.uvarint("operators, count", uint64(len(charter.Operators)))
	for i := range charter.Operators {
		p.add(fmt.Sprintf("operator %d, key", i), charter.Operators[i][:]...)
	}
	p.uvarint("threshold", uint64(charter.Threshold))
	p.bool("registration by operators", charter.RegistrationByOperators)
	quotas := charter.Quotas != ledger.Quotas{}
	if charter.Version > 1 {
		p.uvarint("version of the chain", uint64(charter.Version))
		p.bool("quotas follow", quotas)
	}
	if quotas {
		quotasParts(p, charter.Quotas)
	}
}

func verdictParts(p *parts, of string, verdict *ledger.Verdict) {
	p.add(of+"transaction id", verdict.ID[:]...)
	p.uvarint(of+"shard", uint64(verdict.Shard))
	resultParts(p, of, verdict.Result)
}

func resultParts(p *parts, of string, result ledger.Result) {
	p.add(fmt.Sprintf("%sresult, code: %s", of, result.Code), byte(result.Code))
	p.big(of+"result, item", uint64(result.Item), 4)
}

func transactionVector(name string, t *ledger.Transaction) vector {
	p := transactionParts(t)
	return vector{Name: name, Parts: p, Encoded: p.hex(), Hash: hex.EncodeToString(idOf(t))}
}

func idOf(t *ledger.Transaction) []byte {
	return hashOf(domain("ledgerd/transaction/1"), transactionParts(t).bytes())
}

// signer is an organisation with the name of its key.
type signer struct {
	organisation ledger.OrganisationName
	key          string
}

// signaturesParts are the list of the bundle's signatures.
func (b signedBundle) signaturesParts(p *parts) {
	p.uvarint("signatures, count", uint64(len(b.signers)))
	for i, each := range b.signers {
		key := ledgertest.Key(each.key)
		of := fmt.Sprintf("signature %d, ", i)
		p.string(of+"organisation", []byte(each.organisation))
		p.add(of+"key", key.Public().(ed25519.PublicKey)...)
		p.add(of+"ed25519", ed25519.Sign(key, b.message())...)
	}
}

// signedBundle is a bundle and its signers.
type signedBundle struct {
	name         string
	transactions []ledger.Transaction
	signers      []signer
	packed       bool
}

// message is what the signatures sign.
func (b signedBundle) message() []byte {
	_, leaves := b.ids()
	if b.packed {
		return append(domain("ledgerd/bundle/2"), rootOf(leaves)...)
	}
	return append(domain("ledgerd/bundle/1"), rootOf(leaves)...)
}

// ids returns the ids of all transactions, and the leaves under the bundle's root.
func (b signedBundle) ids() (ids, leaves [][]byte) {
	if b.packed {
		return b.packedIDs()
	}
	for i := range b.transactions {
		id := idOf(&b.transactions[i])
		ids, leaves = append(ids, id), append(leaves, leafOf(id))
	}
	return ids, leaves
}

func (b signedBundle) vector() bundleVector {
	ids, leaves := b.ids()
	root := rootOf(leaves)
	var p parts
	p.add("version", 1)
	p.uvarint("transactions, count", uint64(len(b.transactions)))
	for i := range b.transactions {
		p.string(fmt.Sprintf("transaction %d, body", i),
			transactionParts(&b.transactions[i]).bytes())
	}
	b.signaturesParts(&p)
	return bundleVector{vector{Name: b.name, Parts: p, Encoded: p.hex(),
		Signed: hex.EncodeToString(b.message())},
		hexes(ids), hexes(leaves), hex.EncodeToString(root)}
}

// bundle returns what package ledger makes of the same.
func (b signedBundle) bundle(t *testing.T) *ledger.Bundle {
	t.Helper()
	newBundle := ledger.NewBundle
	if b.packed {
		newBundle = ledger.PackBundle
	}
	bundle, err := newBundle(b.transactions...)
	if err != nil {
		t.Fatalf("%s: %v", b.name, err)
	}
	for _, each := range b.signers {
		if err := bundle.Sign(each.organisation, ledgertest.Key(each.key)); err != nil {
			t.Fatal(err)
		}
	}
	return bundle
}

// outcome says what became of a transaction in a block: dropped, or its result.
type outcome struct {
	dropped bool
	result  ledger.Result
}

// sealedBundle is a bundle in a block.
type sealedBundle struct {
	signedBundle
	number   uint64 // in the parent's stream
	outcomes []outcome
}

// exampleBlock is a block to encode.
type exampleBlock struct {
	name    string
	header  ledger.Header // without roots and previous hash
	bundles []sealedBundle
}

// trees returns the leaves of the block's three trees.
func (b exampleBlock) trees() (transactions, results, bundles [][]byte) {
	if b.header.ByBundle {
		of, outcomes, _ := b.leavesByBundle()
		return leavesOf(of), leavesOf(outcomes), b.seals()
	}
	for _, sealed := range b.bundles {
		ids, leaves := sealed.ids()
		for i, each := range sealed.outcomes {
			if each.dropped {
				continue
			}
			transactions = append(transactions, leaves[i])
			results = append(results, leafOf(ids[i], []byte{byte(each.result.Code)},
				bigEndian(uint64(each.result.Item), 4)))
		}
	}
	return transactions, results, b.seals()
}

// seals returns the leaves under the bundles root.
func (b exampleBlock) seals() (bundles [][]byte) {
	for _, sealed := range b.bundles {
		ids, leaves := sealed.ids()
		var seal parts
		if sealed.packed {
			seal.add("mark", 0, 0)
		}
		if sealed.number > 0 {
			seal.add("mark", 0)
			seal.uvarint("number in the stream", sealed.number)
		}
		seal.uvarint("transactions, count", uint64(len(ids)))
		seal.add("root", rootOf(leaves)...)
		sealed.signaturesParts(&seal)
		bundles = append(bundles, leafOf(seal.bytes()))
	}
	return bundles
}

// count returns the number of transactions in the block.
func (b exampleBlock) count() (count uint64) {
	for _, sealed := range b.bundles {
		for _, each := range sealed.outcomes {
			if !each.dropped {
				count++
			}
		}
	}
	return count
}

func (b exampleBlock) headerParts(previous []byte) (p parts) {
	transactions, results, bundles := b.trees()
	if b.header.ByBundle {
		p.add("version", 2)
	} else {
		p.add("version", 1)
	}
	p.big("height", uint64(b.header.Height), 8)
	p.add("hash of the previous block", previous...)
	p.big("epoch", uint64(b.header.Epoch), 8)
	p.big("round", uint64(b.header.Round), 8)
	p.big("time", uint64(b.header.Time), 8)
	p.add("transactions root", rootOf(transactions)...)
	p.add("results root", rootOf(results)...)
	p.add("bundles root", rootOf(bundles)...)
	p.add("state digest", b.header.StateDigest[:]...)
	p.big("transactions in the block", b.count(), 4)
	p.big("transactions in the chain", b.header.Total, 8)
	return p
}

func (b exampleBlock) vector(previous []byte) blockVector {
	transactions, results, bundles := b.trees()
	header := b.headerParts(previous)
	v := blockVector{Name: b.name, Header: header, EncodedHeader: header.hex(),
		Hash:              hex.EncodeToString(hashOf(domain("ledgerd/block/1"), header.bytes())),
		TransactionLeaves: hexes(transactions), ResultLeaves: hexes(results),
		BundleLeaves: hexes(bundles)}
	var p parts
	p.add("header", header.bytes()...)
	p.uvarint("bundles, count", uint64(len(b.bundles)))
	for i, sealed := range b.bundles {
		of := fmt.Sprintf("bundle %d, ", i)
		if sealed.number > 0 {
			p.add(of+"mark of the parent's stream", 0)
			p.uvarint(of+"number in the stream", sealed.number)
		}
		var signatures parts
		sealed.signaturesParts(&signatures)
		if sealed.packed {
			sealed.packedInBlock(&p, of)
			p.nested(fmt.Sprintf("bundle %d", i), signatures)
			continue
		}
		ids, _ := sealed.ids()
		p.uvarint(of+"transactions, count", uint64(len(ids)))
		for j, each := range sealed.outcomes {
			place := fmt.Sprintf("%stransaction %d, ", of, j)
			p.bool(place+"kept", !each.dropped)
			if each.dropped {
				p.add(place+"id", ids[j]...)
				continue
			}
			p.string(place+"body", transactionParts(&sealed.transactions[j]).bytes())
			resultParts(&p, place, each.result)
		}
		p.nested(fmt.Sprintf("bundle %d", i), signatures)
	}
	v.Parts, v.Encoded = p, p.hex()
	return v
}

// block returns what package ledger makes of the same.
func (b exampleBlock) block(t *testing.T, previous ledger.Hash) *ledger.Block {
	t.Helper()
	block := &ledger.Block{Header: b.header}
	block.Header.Previous = previous
	for i, sealed := range b.bundles {
		seal := ledger.BundleSeal{Number: sealed.number, Kept: make([]bool, len(sealed.outcomes))}
		var entries []ledger.Entry
		if first := &sealed.transactions[0]; first.Verdict != nil { // no client's bundle
			entries = append(entries, first.Verdict.Entry(first.Ledger))
			seal.IDs = []ledger.Hash{entries[0].ID}
			seal.Root = ledger.IDRoot(seal.IDs)
		} else {
			signed := sealed.bundle(t)
			seal = signed.Seal(seal.Kept)
			seal.Number = sealed.number
			if sealed.packed {
				for place, each := range sealed.outcomes {
					fail(&seal, place, each.result)
				}
				block.AddPacked(seal)
				continue
			}
			for place := range signed.Len() {
				entries = append(entries, signed.Entry(place, 0))
			}
		}
		for place, each := range sealed.outcomes {
			if seal.Kept[place] = !each.dropped; each.dropped {
				continue
			}
			entry := entries[place]
			entry.Result, entry.Bundle, entry.Place = each.result, i, place
			block.Unpacked = append(block.Unpacked, entry)
		}
		block.Bundles = append(block.Bundles, seal)
	}
	block.Header.Transactions = uint32(block.Len())
	block.Complete(b.header.StateDigest)
	return block
}

// proofParts are the proof of an entry.
func (b exampleBlock) proofParts(previous []byte, index int) (p parts) {
	transactions, results, _ := b.trees()
	bundle, place, at := 0, 0, 0
	for i, sealed := range b.bundles {
		for j, each := range sealed.outcomes {
			if each.dropped {
				continue
			}
			if at == index {
				bundle, place = i, j
			}
			at++
		}
	}
	sealed := b.bundles[bundle]
	ids, leaves := sealed.ids()
	header := b.headerParts(previous).bytes()
	p.add("version", 1)
	p.string("body", transactionParts(&sealed.transactions[place]).bytes())
	p.add("id", ids[place]...)
	p.string("header", header)
	p.add("hash of the block", hashOf(domain("ledgerd/block/1"), header)...)
	p.big("index in the block", uint64(index), 4)
	p.big("transactions in the block", uint64(len(transactions)), 4)
	p.path("transaction path", pathOf(transactions, index))
	resultParts(&p, "", sealed.outcomes[place].result)
	p.path("result path", pathOf(results, index))
	p.big("index in the bundle", uint64(place), 4)
	p.big("transactions in the bundle", uint64(len(ids)), 4)
	p.path("bundle path", pathOf(leaves, place))
	p.add("root of the bundle", rootOf(leaves)...)
	sealed.signaturesParts(&p)
	return p
}

// certificateOf is the content of a certificate: the members with these indexes signed.
type certificateOf struct {
	chain, hash   []byte
	epoch, height uint64
	members       []int
	change        parts
}

func (c certificateOf) message() []byte {
	return slices.Concat(domain("ledgerd/stored/1"), c.chain, bigEndian(c.epoch, 8),
		bigEndian(c.height, 8), c.hash)
}

func (c certificateOf) sealParts(p *parts, of string, member int) {
	p.big(of+"member", uint64(member), 4)
	p.add(of+"ed25519", ed25519.Sign(ledgertest.Key(fmt.Sprintf("node-%d", member)),
		c.message())...)
}

func (c certificateOf) blockParts(p *parts) {
	p.big("epoch of the members", c.epoch, 8)
	p.big("height", c.height, 8)
	p.add("hash of the block", c.hash...)
}

func (c certificateOf) statementParts(member int) (p parts) {
	c.blockParts(&p)
	c.sealParts(&p, "", member)
	return p
}

func (c certificateOf) parts() (p parts) {
	p.add("version", 1)
	c.blockParts(&p)
	p.uvarint("seals, count", uint64(len(c.members)))
	for i, member := range c.members {
		c.sealParts(&p, fmt.Sprintf("seal %d, ", i), member)
	}
	p.bool("a proof of the change of members follows", c.change != nil)
	if c.change != nil {
		p.string("proof of the change", c.change.bytes())
	}
	return p
}

func finalityParts(changes []certificateOf, headers [][]byte, certificate certificateOf) (p parts) {
	p.add("version", 1)
	p.uvarint("changes, count", uint64(len(changes)))
	for i, change := range changes {
		p.string(fmt.Sprintf("change %d, certificate", i), change.parts().bytes())
	}
	p.uvarint("headers, count", uint64(len(headers)))
	for i, header := range headers {
		p.add(fmt.Sprintf("header %d", i), header...)
	}
	p.string("certificate", certificate.parts().bytes())
	return p
}

func fromHex(text string) []byte {
	content, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return content
}
