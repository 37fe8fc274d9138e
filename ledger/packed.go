package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// A packed bundle holds plain transfers of one signer as records of a fixed size. What its
// transfers have in common is in its head, once, and the names of accounts are in a table of the
// bundle, to which the records refer by number. Its parts are the head, the names, packedPart at a
// time, and the records, packedPart at a time. The bundle's root is the RFC 6962 root over the
// parts, so a proof of one transfer needs only the parts that it is in. The transfers need no
// hashes of their own: an id is made of the root and the transfer's place.
//
// The table has names and not the numbers that the accounts have in a chain. So signers sign the
// names that they mean, and need not believe the node that tells them a number. And a bundle can be
// decoded and proven without the state.

// Bounds of a packed bundle.
const (
	// MaxPackedAssets bounds the assets of a packed bundle.
	MaxPackedAssets = 16
	// MaxBatchPacked bounds the transfers in the packed bundles of a batch. A transfer may have few
	// bytes there, and takes some hundred when it is decoded. The packed bundles of a batch with
	// which there are more are left out of the block; see Verifier.Batch.
	MaxBatchPacked = 1 << 17
	// packedPart is how many names or records are in a part, except in the last one.
	packedPart = 64
)

const (
	packedBundleVersion = 3
	packedBundleDomain  = "ledgerd/bundle/2\x00"
	// packedIDRoot is how many bytes of an id are from the bundle's root. The others are the place.
	packedIDRoot = HashSize - 2
)

// ErrNotPlain reports that transactions cannot be in one packed bundle; see PackBundle.
var ErrNotPlain = errors.New("ledger: not plain transfers of one signer with consecutive nonces")

// packedHead is the first part of a packed bundle: what the transfers have in common, and the sizes
// of the other parts.
type packedHead struct {
	ledger    Hash
	signer    OrganisationName
	nonce     Nonce // of the first transfer; the others follow without a gap
	lastValid Height
	assets    []AssetName
	names     int // 2 to 2*MaxBundleTransactions
	count     int // of the transfers
	width     int // of an amount in bytes, 1 to 16: the fewest that suffice
}

// packed is the content of a packed bundle: all but its signatures.
type packed struct {
	packedHead
	content []byte
	// ends are the ends of the head and of the parts with names. The records follow.
	ends []int
	// paths are the names, one after the other, which end at pathEnds.
	paths    string
	pathEnds []uint32
}

// path returns the name with a number.
func (p *packed) path(number int) AccountPath {
	from := uint32(0)
	if number > 0 {
		from = p.pathEnds[number-1]
	}
	return AccountPath(p.paths[from:p.pathEnds[number]])
}

// record returns the record at a place.
func (p *packed) record(place int) packedRecord {
	size := p.recordSize()
	return p.packedHead.record(p.content[p.ends[len(p.ends)-1]+place*size:][:size])
}

// from returns the number of the name of the account that the transfer at a place takes from.
func (p *packed) from(place int) int {
	encoded := p.content[p.ends[len(p.ends)-1]+place*p.recordSize():]
	if p.numberWidth() == 1 {
		return int(encoded[0])
	}
	return int(binary.BigEndian.Uint16(encoded))
}

// transaction makes the transfer at a place.
func (p *packed) transaction(place int) *Transaction {
	made := &struct {
		Transaction
		postings [2]Posting
	}{}
	made.Postings = made.postings[:]
	Transfers{p}.Set(&made.Transaction, place)
	return &made.Transaction
}

// Transfers are the transfers of a packed bundle. They are executed from here, because a bundle has
// hundreds, and to make a Transaction of each at each node takes longer than to execute it.
type Transfers struct{ packed *packed }

// Len returns how many transfers there are.
func (t Transfers) Len() int { return t.packed.count }

// Accounts returns how many names are in the table of accounts. A name may be there twice.
func (t Transfers) Accounts() int { return t.packed.names }

// Account returns the name with a number in the table.
func (t Transfers) Account(number int) AccountPath { return t.packed.path(number) }

// At returns the transfer at a place: the numbers of the accounts in the table, the asset, and the
// amount, which is above zero.
func (t Transfers) At(place int) (from, to int, asset AssetName, amount Amount) {
	record := t.packed.record(place)
	return record.from, record.to, t.packed.assets[record.asset], record.amount
}

// AccountBytes returns how many bytes of memory the table of accounts takes.
func (t Transfers) AccountBytes() int { return len(t.packed.paths) + 4*len(t.packed.pathEnds) }

// Set sets a transaction to the transfer at a place, and returns the numbers of the accounts in the
// table. It overwrites the transaction's two postings.
func (t Transfers) Set(transaction *Transaction, place int) (from, to int) {
	record := t.packed.record(place)
	t.packed.transfer(transaction, place, t.packed.path(record.from), t.packed.path(record.to),
		&record)
	return record.from, record.to
}

// numberWidth returns how many bytes the number of a name has.
func (h *packedHead) numberWidth() int {
	if h.names > 1<<8 {
		return 2
	}
	return 1
}

// recordSize returns the size of a record.
func (h *packedHead) recordSize() int {
	size := 2*h.numberWidth() + h.width
	if len(h.assets) > 1 {
		size++
	}
	return size
}

// partsOf returns how many parts there are for names or records.
func partsOf(count int) int { return (count + packedPart - 1) / packedPart }

// parts returns how many parts the bundle has.
func (h *packedHead) parts() int { return 1 + partsOf(h.names) + partsOf(h.count) }

// part returns a part of the content.
func (p *packed) part(index int) []byte {
	if index < len(p.ends) {
		from := 0
		if index > 0 {
			from = p.ends[index-1]
		}
		return p.content[from:p.ends[index]]
	}
	size := packedPart * p.recordSize()
	from := p.ends[len(p.ends)-1] + (index-len(p.ends))*size
	return p.content[from:min(from+size, len(p.content))]
}

// leaves returns the leaf hashes over the parts.
func (p *packed) leaves() []Hash {
	leaves := make([]Hash, p.parts())
	for i := range leaves {
		leaves[i] = leafHash(p.part(i))
	}
	return leaves
}

// packedID returns the id of the transfer at a place of the packed bundle with this root: the first
// 30 bytes of the root, and the place as 2 bytes.
func packedID(root *Hash, place int) (id Hash) {
	copy(id[:packedIDRoot], root[:])
	binary.BigEndian.PutUint16(id[packedIDRoot:], uint16(place))
	return id
}

// PackedPlace splits the id of a transfer of a packed bundle into the id of the bundle's first
// transfer, and the place. The id of any other transaction has no such parts: what PackedPlace
// returns for it is the id of nothing.
func PackedPlace(id Hash) (first Hash, place int) {
	place = int(binary.BigEndian.Uint16(id[packedIDRoot:]))
	binary.BigEndian.PutUint16(id[packedIDRoot:], 0)
	return id, place
}

// packedIDs returns the ids of all transfers.
func packedIDs(root *Hash, count int) []Hash {
	ids := make([]Hash, count)
	for place := range ids {
		ids[place] = packedID(root, place)
	}
	return ids
}

// plain reports whether a transaction is a plain transfer: two postings of one asset, the first of
// which takes what the second one gives to another account, and nothing else.
func (t *Transaction) plain() bool {
	if len(t.Postings) != 2 || t.Deadline != 0 ||
		len(t.Registrations)+len(t.Openings)+len(t.Records)+len(t.Note) > 0 ||
		t.Change != nil || t.Verdict != nil || t.Policy != nil || t.Charter != nil ||
		t.Cancellation != nil || t.Book != nil || t.Asset != nil || t.Hold != nil ||
		t.HoldEnd != nil || t.Account != nil || t.Details != nil || t.Schedules() {
		return false
	}
	from, to := &t.Postings[0], &t.Postings[1]
	taken, err := from.Amount.Neg()
	return err == nil && to.Amount.Sign() > 0 && taken == to.Amount && from.Asset == to.Asset &&
		from.Account != to.Account
}

// PackBundle makes an unsigned packed bundle of plain transfers. Such a bundle takes a fraction of
// the bytes and of the work of one by NewBundle. Chains take it from version PackedVersion on, in
// books of one shard.
//
// The transfers must have one ledger, signer and last valid height, consecutive nonces of one
// stream, at most MaxPackedAssets assets, and each must be a plain transfer: two postings of one
// asset, the first of which takes what the second one gives to another account, and nothing else.
// Otherwise PackBundle returns ErrNotPlain. It returns ErrBundleSize, ErrMalformed or ErrName as
// NewBundle does. The caller must not change the transactions afterwards.
func PackBundle(transactions ...Transaction) (*Bundle, error) {
	count := len(transactions)
	if count == 0 || count > MaxBundleTransactions {
		return nil, fmt.Errorf("%w: %d transactions, 1 to %d allowed", ErrBundleSize, count,
			MaxBundleTransactions)
	}
	first := &transactions[0]
	head := packedHead{ledger: first.Ledger, signer: first.Signer, nonce: first.Nonce,
		lastValid: first.LastValid, count: count}
	if first.Nonce.Sequence > math.MaxUint64-uint64(count) {
		return nil, fmt.Errorf("%w: the nonces overflow", ErrNotPlain)
	}
	numbers, names := make(map[AccountPath]uint16, 2*count), make([]AccountPath, 0, 2*count)
	number := func(name AccountPath) uint16 {
		found, known := numbers[name]
		if !known {
			found = uint16(len(names))
			numbers[name], names = found, append(names, name)
		}
		return found
	}
	type record struct {
		from, to uint16
		asset    byte
	}
	records, largest := make([]record, count), 0
	for i := range transactions {
		t := &transactions[i]
		asset, known := head.asset(t)
		if !t.plain() || t.Ledger != first.Ledger || t.Signer != first.Signer ||
			t.LastValid != first.LastValid || !known || t.Nonce != (Nonce{first.Nonce.Stream,
			first.Nonce.Sequence + uint64(i)}) {
			return nil, fmt.Errorf("transaction %d: %w", i, ErrNotPlain)
		}
		if err := t.checkForm(); err != nil {
			return nil, fmt.Errorf("transaction %d: %w", i, err)
		}
		records[i] = record{from: number(t.Postings[0].Account), to: number(t.Postings[1].Account),
			asset: byte(asset)}
		largest = max(largest, t.Postings[1].Amount.width())
	}
	head.names, head.width = len(names), largest
	content := head.append(make([]byte, 0, 256+16*len(names)+count*head.recordSize()))
	p := &packed{packedHead: head, ends: []int{len(content)},
		pathEnds: make([]uint32, 0, len(names))}
	paths := make([]byte, 0, 24*len(names))
	for i, name := range names {
		paths = append(paths, name...)
		p.pathEnds = append(p.pathEnds, uint32(len(paths)))
		before := AccountPath("")
		if i%packedPart != 0 {
			before = names[i-1]
		}
		shared := sharedPrefix(before, name)
		content = binary.AppendUvarint(content, uint64(shared))
		content = codec.AppendString(content, name[shared:])
		if (i+1)%packedPart == 0 || i+1 == len(names) {
			p.ends = append(p.ends, len(content))
		}
	}
	for i := range records {
		content = head.appendNumber(content, int(records[i].from))
		content = head.appendNumber(content, int(records[i].to))
		if len(head.assets) > 1 {
			content = append(content, records[i].asset)
		}
		content = transactions[i].Postings[1].Amount.appendFixed(content, head.width)
	}
	if err := checkBodies(len(content)); err != nil {
		return nil, err
	}
	p.content, p.paths = content, string(paths)
	return packedBundle(p), nil
}

// packedBundle returns the unsigned bundle of a content.
func packedBundle(p *packed) *Bundle { return &Bundle{root: merkleRoot(p.leaves()), packed: p} }

// asset returns the number of a transfer's asset, which it adds to the head if it is new and there
// is room.
func (h *packedHead) asset(t *Transaction) (number int, known bool) {
	if len(t.Postings) == 0 {
		return 0, false
	}
	for i, asset := range h.assets {
		if asset == t.Postings[0].Asset {
			return i, true
		}
	}
	if len(h.assets) == MaxPackedAssets {
		return 0, false
	}
	h.assets = append(h.assets, t.Postings[0].Asset)
	return len(h.assets) - 1, true
}

// append appends the encoding of the head.
func (h *packedHead) append(to []byte) []byte {
	to = append(append(to, packedBundleVersion), h.ledger[:]...)
	to = codec.AppendString(to, h.signer)
	to = binary.AppendUvarint(to, h.nonce.Stream)
	to = binary.AppendUvarint(to, h.nonce.Sequence)
	to = binary.AppendUvarint(to, uint64(h.lastValid))
	to = binary.AppendUvarint(to, uint64(len(h.assets)))
	for _, asset := range h.assets {
		to = codec.AppendString(to, asset)
	}
	to = binary.AppendUvarint(to, uint64(h.names))
	to = binary.AppendUvarint(to, uint64(h.count))
	return append(to, byte(h.width))
}

// packedHead reads the head of a packed bundle.
func (r *reader) packedHead() (h packedHead) {
	if version := r.Byte(); version != packedBundleVersion {
		r.Fail("packed bundle version %d", version)
	}
	h = packedHead{ledger: r.Hash(),
		signer:    OrganisationName(r.String("bytes of organisation", MaxOrganisationName)),
		nonce:     Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()},
		lastValid: Height(r.Uvarint())}
	h.assets = make([]AssetName, r.Count("assets", MaxPackedAssets, 2))
	for i := range h.assets {
		h.assets[i] = AssetName(r.String("bytes of asset", MaxAssetName))
	}
	names, count := r.Uvarint(), r.Uvarint()
	h.width = int(r.Byte())
	switch {
	case r.Err != nil:
	case h.signer.Validate() != nil:
		r.Fail("a malformed signer")
	case count == 0 || count > MaxBundleTransactions:
		r.Fail("%d transfers, 1 to %d allowed", count, MaxBundleTransactions)
	case names < 2 || names > 2*count:
		r.Fail("%d names of %d transfers", names, count)
	case len(h.assets) == 0:
		r.Fail("no asset")
	case h.width == 0 || h.width > 16:
		r.Fail("amounts of %d bytes", h.width)
	case h.nonce.Sequence > math.MaxUint64-count:
		r.Fail("the nonces overflow")
	}
	for i, asset := range h.assets {
		if r.Err == nil && asset.Validate() != nil {
			r.Fail("a malformed asset")
		}
		for _, earlier := range h.assets[:i] {
			if asset == earlier {
				r.Fail("asset %s twice", asset)
			}
		}
	}
	h.names, h.count = int(names), int(count)
	return h
}

// packedNames reads a part's names, and appends their bytes to the arena and their ends in it to
// ends.
func (r *reader) packedNames(count int, arena []byte, ends []uint32) ([]byte, []uint32) {
	before := 0 // where the name before begins in the arena, at the end of which it ends
	for i := range count {
		shared := r.Uvarint()
		rest := r.Bytes("bytes of account", MaxAccountPath)
		length := len(arena) - before
		if i == 0 {
			length = 0
		}
		switch {
		case r.Err != nil:
			return arena, ends
		case shared > uint64(length):
			r.Fail("a name shares %d bytes with one of %d", shared, length)
			return arena, ends
		case len(rest) > 0 && shared < uint64(length) && rest[0] == arena[before+int(shared)]:
			r.Fail("a name shares more with the one before it")
			return arena, ends
		}
		from := len(arena)
		arena = append(append(arena, arena[before:before+int(shared)]...), rest...)
		before = from
		ends = append(ends, uint32(len(arena)))
	}
	return arena, ends
}

// checkPaths reports whether the paths that end at these places are well formed.
func checkPaths(paths string, ends []uint32) bool {
	from := uint32(0)
	for _, end := range ends {
		if !validPath(paths[from:end]) {
			return false
		}
		from = end
	}
	return true
}

// packedRecord is a decoded record.
type packedRecord struct {
	from, to, asset int
	amount          Amount
}

// packedRecord reads a record.
func (r *reader) packedRecord(h *packedHead) (record packedRecord) {
	encoded := r.Take(h.recordSize())
	if encoded == nil {
		return packedRecord{}
	}
	record = h.record(encoded)
	h.checkRecord(r, &record)
	return record
}

// record decodes a record of the right size.
func (h *packedHead) record(encoded []byte) (record packedRecord) {
	if h.numberWidth() == 1 {
		record.from, record.to, encoded = int(encoded[0]), int(encoded[1]), encoded[2:]
	} else {
		record.from, record.to = int(binary.BigEndian.Uint16(encoded)),
			int(binary.BigEndian.Uint16(encoded[2:]))
		encoded = encoded[4:]
	}
	if len(h.assets) > 1 {
		record.asset, encoded = int(encoded[0]), encoded[1:]
	}
	var high, low uint64
	for _, digit := range encoded {
		high, low = high<<8|low>>56, low<<8|uint64(digit)
	}
	record.amount = Amount{high: int64(high), low: low}
	return record
}

// checkRecord lets the reader fail if a record cannot be one of the bundle.
func (h *packedHead) checkRecord(r *reader, record *packedRecord) {
	switch {
	case record.from >= h.names || record.to >= h.names || record.from == record.to ||
		record.asset >= len(h.assets):
		r.Fail("a record of names %d and %d of %d, asset %d", record.from, record.to, h.names,
			record.asset)
	case record.amount.Sign() <= 0:
		r.Fail("a transfer of %s", record.amount)
	}
}

// transfer sets a transaction, which has two postings, to the transfer of a record.
func (h *packedHead) transfer(t *Transaction, place int, from, to AccountPath,
	record *packedRecord) {
	asset := h.assets[record.asset]
	taken, _ := record.amount.Neg() // an amount above zero has one
	t.Postings[0] = Posting{Account: from, Asset: asset, Amount: taken}
	t.Postings[1] = Posting{Account: to, Asset: asset, Amount: record.amount}
	t.Ledger, t.Signer, t.LastValid = h.ledger, h.signer, h.lastValid
	t.Nonce = Nonce{Stream: h.nonce.Stream, Sequence: h.nonce.Sequence + uint64(place)}
}

// namesScratch is memory in which names are put together. How long they are is known at their end
// only, and their bundle keeps as many bytes as they have.
var namesScratch = sync.Pool{New: func() any { return new([]byte) }}

// packed reads the content of a packed bundle, whose encoding is data from its first byte on. It
// returns nil if the reader fails.
func (r *reader) packed(data []byte) *packed {
	p := &packed{packedHead: r.packedHead()}
	if r.Err != nil {
		return nil
	}
	read := func() int { return len(data) - len(r.Data) }
	p.ends = append(make([]int, 0, 1+partsOf(p.names)), read())
	scratch := namesScratch.Get().(*[]byte)
	defer namesScratch.Put(scratch)
	arena := (*scratch)[:0]
	p.pathEnds = make([]uint32, 0, p.names)
	for left := p.names; left > 0 && r.Err == nil; left -= packedPart {
		arena, p.pathEnds = r.packedNames(min(left, packedPart), arena, p.pathEnds)
		p.ends = append(p.ends, read())
	}
	if *scratch = arena; r.Err != nil {
		return nil
	}
	if p.paths = string(arena); !checkPaths(p.paths, p.pathEnds) {
		r.Fail("a malformed account")
		return nil
	}
	records := r.Take(p.count * p.recordSize())
	if r.Err != nil {
		return nil
	}
	order, size := packedOrder{}, p.recordSize()
	for ; len(records) > 0; records = records[size:] {
		record := p.packedHead.record(records[:size])
		p.checkRecord(r, &record)
		if r.Err == nil && !order.follows(&record) {
			r.Fail("names or assets that are not in the order of their first use")
		}
		if r.Err == nil && p.path(record.from) == p.path(record.to) {
			r.Fail("a transfer from an account to itself")
		}
		if r.Err != nil {
			return nil
		}
	}
	if order.names != p.names || order.assets != len(p.assets) || order.width != p.width {
		r.Fail("a name or asset of no transfer, or amounts with more bytes than they need")
		return nil
	}
	p.content = data[:read():read()]
	return p
}

// packedOrder checks that the names and assets are in the order of their first use, and finds how
// many bytes the amounts need. A name may be in the table twice: to find that out would take longer
// than all other checks, and nothing depends on it.
type packedOrder struct{ names, assets, width int }

func (o *packedOrder) follows(record *packedRecord) bool {
	use := func(number int, used *int) bool {
		if number == *used {
			*used++
		}
		return number < *used
	}
	o.width = max(o.width, record.amount.width())
	return use(record.from, &o.names) && use(record.to, &o.names) && use(record.asset, &o.assets)
}

// appendNumber appends the number of a name.
func (h *packedHead) appendNumber(to []byte, number int) []byte {
	if h.numberWidth() == 1 {
		return append(to, byte(number))
	}
	return binary.BigEndian.AppendUint16(to, uint16(number))
}

// sharedPrefix returns how many bytes two names have in common at their beginning.
func sharedPrefix(a, b AccountPath) int {
	shared := 0
	for shared < min(len(a), len(b)) && a[shared] == b[shared] {
		shared++
	}
	return shared
}

// width returns how many bytes an amount that is not below zero needs.
func (a Amount) width() int {
	if a.high != 0 {
		return 8 + (bits.Len64(uint64(a.high))+7)/8
	}
	return (bits.Len64(a.low) + 7) / 8
}

// appendFixed appends an amount that is not below zero as so many bytes, big-endian.
func (a Amount) appendFixed(to []byte, width int) []byte {
	var all [16]byte
	binary.BigEndian.PutUint64(all[:], uint64(a.high))
	binary.BigEndian.PutUint64(all[8:], a.low)
	return append(to, all[16-width:]...)
}

// packedSizes returns how many transfers and how many names an encoded bundle has if it is a packed
// one, as its head says; 0 if it is none, or its head is malformed.
func packedSizes(encoded []byte) (transfers, names int) {
	if len(encoded) == 0 || encoded[0] != packedBundleVersion {
		return 0, 0
	}
	r := read(encoded)
	head := r.packedHead()
	if r.Err != nil {
		return 0, 0
	}
	return head.count, head.names
}

// What a packed bundle takes in memory once it is decoded: for each transfer its result in a block,
// if one of them fails, and for each name at most its bytes and their end. leastRecord and
// leastName are the fewest bytes that they have encoded.
const (
	transferMemory = 8
	nameMemory     = MaxAccountPath + 4
	leastRecord    = 3
	leastName      = 2
)

// PackedMemory returns about how many bytes of memory the transfers of an encoded bundle take at
// most once it is decoded and in a block, beside the encoding. It is 0 if the bundle is not packed:
// then it is in proportion to the encoding. A transfer may have 3 bytes there, and a name 2, so a
// head that is a lie counts for no more.
func PackedMemory(encoded []byte) int {
	_, names := packedSizes(encoded)
	return transferMemory*PackedTransfers(encoded) + nameMemory*min(names, len(encoded)/leastName)
}

// PackedTransfers returns how many transfers an encoded bundle has at most. It is 0 if the bundle
// is not packed. A head that is a lie counts for no more than the bytes have room for.
func PackedTransfers(encoded []byte) int {
	transfers, _ := packedSizes(encoded)
	return min(transfers, len(encoded)/leastRecord)
}

// PackedBatchMemory is PackedMemory of the bundles of a batch, as VerifyBatch decodes them. What is
// malformed counts for nothing.
func PackedBatchMemory(batch []byte) int {
	r := read(batch)
	_, count := r.batchHeader(new(BatchHeader))
	bytes, packed := 0, 0
	for range count {
		encoded := r.Bytes("bytes of bundle", MaxBundleBytes)
		transfers, _ := packedSizes(encoded)
		if packed += transfers; packed <= MaxBatchPacked {
			bytes += PackedMemory(encoded)
		}
	}
	return bytes
}

// decodePackedBundle is DecodeBundle for a packed bundle.
func decodePackedBundle(data []byte) (*Bundle, error) {
	r := read(data)
	p := r.packed(data)
	signatures := r.signatures()
	if err := r.End(); err != nil {
		return nil, err
	}
	bundle := packedBundle(p)
	bundle.signatures, bundle.encoded, bundle.decoded = signatures, data, true
	return bundle, nil
}
