package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/oasisprotocol/curve25519-voi/primitives/ed25519"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Bounds of a bundle.
const (
	MaxBundleTransactions = 4096
	MaxBundleSignatures   = 64
	MaxBundleBytes        = 1 << 20
)

const (
	bundleVersion = 1
	bundleDomain  = "ledgerd/bundle/1\x00"
)

// Operator is the organisation in the signature of an operator, and in that of a member that admits
// a disk.
const Operator OrganisationName = ""

// SignatureBytes is an ed25519 signature. Its text form is 128 hex digits.
type SignatureBytes [64]byte

// String returns 128 hex digits.
func (s SignatureBytes) String() string { return hex.EncodeToString(s[:]) }

// MarshalText returns 128 hex digits.
func (s SignatureBytes) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (s *SignatureBytes) UnmarshalText(text []byte) error {
	if len(text) != 2*len(s) {
		return fmt.Errorf("%w: a signature is 128 hex digits", ErrMalformed)
	}
	if _, err := hex.Decode(s[:], text); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// Signature is an organisation's consent to all transactions of a bundle.
type Signature struct {
	// Organisation is the signing organisation. It is Operator for an operator of the ledger and
	// for a member that admits a disk.
	Organisation OrganisationName `json:"organisation"`
	Key          PublicKey        `json:"key"`
	// Bytes is the signature of "ledgerd/bundle/1", or "ledgerd/bundle/2" for a packed bundle, a
	// zero byte and the bundle's root.
	Bytes SignatureBytes `json:"signature"`
}

// Bundle is a client's submission: 1 to MaxBundleTransactions transactions and the signatures over
// all of them. A bundle and everything that its methods return are read-only, except that Sign and
// AddSignature add signatures.
type Bundle struct {
	// transactions and ids are nil for a packed bundle, which has them in packed.
	transactions []Transaction
	// bodies are the places of the transactions' encodings in memory. One that is missing, because
	// a bundle from the parent shard has only its id, is empty.
	bodies     []span
	memory     []byte
	ids        []Hash
	signatures []Signature
	// tree is over the ids. Blocks with the bundle take nodes of it.
	tree    idTree
	root    Hash
	encoded []byte
	// packed is the content of a packed bundle, which has no bodies and no tree. It is nil for any
	// other bundle.
	packed *packed
	// decoded says that DecodeBundle made the bundle from encoded.
	decoded bool
}

// span is a part of a bundle's memory, of less than 4 GiB.
type span struct{ start, end uint32 }

// ErrBundleSize reports that a bundle is empty or too large.
var ErrBundleSize = errors.New("ledger: bundle size")

var errNotAlone = errors.New("a change of the membership or of the shards is alone in its bundle")

var errVerdictsApart = errors.New("only good verdicts of one shard share a bundle")

// NewBundle makes an unsigned bundle, or returns ErrBundleSize, ErrMalformed or ErrName. The caller
// must not change the transactions afterwards.
func NewBundle(transactions ...Transaction) (*Bundle, error) {
	if len(transactions) == 0 || len(transactions) > MaxBundleTransactions {
		return nil, fmt.Errorf("%w: %d transactions, 1 to %d allowed", ErrBundleSize,
			len(transactions), MaxBundleTransactions)
	}
	bundle := &Bundle{transactions: transactions, bodies: make([]span, len(transactions)),
		ids: make([]Hash, len(transactions))}
	for i := range transactions {
		before := len(bundle.memory)
		var err error
		if bundle.memory, err = transactions[i].encodeBody(bundle.memory); err != nil {
			return nil, fmt.Errorf("transaction %d: %w", i, err)
		}
		if err := checkBodies(len(bundle.memory) + (i+1)*binary.MaxVarintLen32); err != nil {
			return nil, err
		}
		bundle.bodies[i] = span{uint32(before), uint32(len(bundle.memory))}
		if transactions[i].alone() && len(transactions) > 1 {
			return nil, fmt.Errorf("transaction %d: %w: %w", i, ErrMalformed, errNotAlone)
		}
		if transactions[i].Verdict != nil || transactions[i].Occurrence != nil {
			return nil, fmt.Errorf("transaction %d: %w: %w", i, ErrMalformed, errNotClients)
		}
		bundle.ids[i] = TransactionID(bundle.Body(i))
	}
	bundle.hashIDs()
	return bundle, nil
}

// hashIDs sets the tree and root over the ids.
func (b *Bundle) hashIDs() {
	b.tree = newIDTree(b.ids)
	b.root = b.tree.root()
}

// NeedsVersion returns the version of a chain from which on all of the bundle's transactions may be
// in its blocks, as Transaction.NeedsVersion says.
func (b *Bundle) NeedsVersion() int {
	version := FirstVersion
	for i := range b.transactions {
		version = max(version, b.transactions[i].NeedsVersion())
	}
	return version
}

// checkBodies returns ErrBundleSize if bodies of this many bytes leave no room for signatures.
func checkBodies(size int) error {
	if size > MaxBundleBytes-MaxBundleSignatures*(MaxOrganisationName+1+32+64)-16 {
		return fmt.Errorf("%w: %d bytes, at most %d allowed with the signatures", ErrBundleSize,
			size, MaxBundleBytes)
	}
	return nil
}

// AssembleBundle makes a bundle from the canonical encodings of its transactions and from existing
// signatures, which it does not verify. It returns the same bundle as NewBundle and AddSignature
// would, or ErrBundleSize, ErrMalformed or ErrName. It copies the bodies once, and decodes them
// once.
func AssembleBundle(bodies [][]byte, signatures []Signature) (*Bundle, error) {
	if len(bodies) == 0 || len(bodies) > MaxBundleTransactions {
		return nil, fmt.Errorf("%w: %d transactions, 1 to %d allowed", ErrBundleSize,
			len(bodies), MaxBundleTransactions)
	}
	size := 0
	for _, body := range bodies {
		size += len(body) + binary.MaxVarintLen32
	}
	if err := checkBodies(size); err != nil {
		return nil, err
	}
	for i := range signatures {
		if err := signatures[i].check(i); err != nil {
			return nil, fmt.Errorf("signature %d: %w", i, err)
		}
	}
	return DecodeBundle(encodeBundle(len(bodies), func(i int) []byte { return bodies[i] },
		signatures))
}

// SigningMessage returns the bytes that the bundle's signatures sign.
func (b *Bundle) SigningMessage() []byte { return signingMessage(b.root, b.packed != nil) }

// signingMessage returns the bytes that the signatures of a bundle with this root sign.
func signingMessage(root Hash, packed bool) []byte {
	domain := bundleDomain
	if packed {
		domain = packedBundleDomain
	}
	return append([]byte(domain), root[:]...)
}

// Sign adds an organisation's signature; for an operator's signature the organisation is Operator.
// The private key has ed25519.PrivateKeySize bytes, in the form of crypto/ed25519.
func (b *Bundle) Sign(organisation OrganisationName, private []byte) error {
	if len(private) != ed25519.PrivateKeySize {
		return fmt.Errorf("%w: a private key has %d bytes", ErrKey, ed25519.PrivateKeySize)
	}
	signature := Signature{Organisation: organisation}
	copy(signature.Key[:], private[32:])
	copy(signature.Bytes[:], ed25519.Sign(ed25519.PrivateKey(private), b.SigningMessage()))
	return b.AddSignature(signature)
}

// AddSignature adds an existing signature. It does not verify it.
func (b *Bundle) AddSignature(signature Signature) error {
	if err := signature.check(len(b.signatures)); err != nil {
		return err
	}
	b.signatures = append(b.signatures, signature)
	b.encoded, b.decoded = nil, false
	return nil
}

// check checks the form of a bundle's signature at a place, counted from 0. It does not verify the
// signature.
func (s *Signature) check(place int) error {
	if place >= MaxBundleSignatures {
		return fmt.Errorf("%w: more than %d signatures", ErrBundleSize, MaxBundleSignatures)
	}
	if s.Organisation == Operator {
		return nil
	}
	return s.Organisation.Validate()
}

// Len returns the number of transactions.
func (b *Bundle) Len() int {
	if b.packed != nil {
		return b.packed.count
	}
	return len(b.transactions)
}

// Transaction returns transaction i. It makes a transfer of a packed bundle anew each time; see
// Transfers for one that does not.
func (b *Bundle) Transaction(i int) *Transaction {
	if b.packed != nil {
		return b.packed.transaction(i)
	}
	return &b.transactions[i]
}

// each calls check for one transaction after another, until it returns an error. The next transfer
// of a packed bundle overwrites the one before.
func (b *Bundle) each(check func(i int, transaction *Transaction) error) error {
	var transfer Transaction
	if b.packed != nil {
		transfer.Postings = make([]Posting, 2)
	}
	for i := range b.Len() {
		transaction := &transfer
		if b.packed != nil {
			b.Transfers().Set(transaction, i)
		} else {
			transaction = &b.transactions[i]
		}
		if err := check(i, transaction); err != nil {
			return err
		}
	}
	return nil
}

// Transfers returns the transfers of a packed bundle, which Packed reports.
func (b *Bundle) Transfers() Transfers { return Transfers{b.packed} }

// Distinct returns how many transactions, from the first one on, differ in more than their nonces
// and postings: all, or only the first of a packed bundle.
func (b *Bundle) Distinct() int {
	if b.packed != nil {
		return 1
	}
	return len(b.transactions)
}

// Entry returns what a block has of transaction i, which is in the bundle with this index there.
// The bundle must not be packed: BundleSeal has what a block has of those.
func (b *Bundle) Entry(i, bundle int) Entry {
	return Entry{ID: b.ids[i], Decoded: &b.transactions[i], Body: b.Body(i), Bundle: bundle,
		Place: i}
}

// Packed reports whether the bundle is a packed one; see PackBundle.
func (b *Bundle) Packed() bool { return b.packed != nil }

// AssemblePackedBundle makes a packed bundle from its content (see Bundle.Content) and from
// existing signatures, which it does not verify. It returns ErrBundleSize, ErrMalformed or ErrName.
func AssemblePackedBundle(content []byte, signatures []Signature) (*Bundle, error) {
	if err := checkBodies(len(content)); err != nil {
		return nil, err
	}
	for i := range signatures {
		if err := signatures[i].check(i); err != nil {
			return nil, fmt.Errorf("signature %d: %w", i, err)
		}
	}
	if len(content) == 0 || content[0] != packedBundleVersion {
		return nil, fmt.Errorf("%w: not a packed bundle", ErrMalformed)
	}
	return DecodeBundle(appendSignatures(slices.Clip(content), signatures))
}

// Body returns the canonical encoding of transaction i. For a packed bundle, which has none, it
// makes the parts of the bundle that show the transfer; see DecodeBody.
func (b *Bundle) Body(i int) []byte {
	if b.packed != nil {
		return b.packed.body(i)
	}
	at := b.bodies[i]
	return b.memory[at.start:at.end:at.end]
}

// ID returns the id of transaction i.
func (b *Bundle) ID(i int) Hash {
	if b.packed != nil {
		return packedID(&b.root, i)
	}
	return b.ids[i]
}

// IDs returns all ids. It makes those of a packed bundle anew each time.
func (b *Bundle) IDs() []Hash {
	if b.packed != nil {
		return packedIDs(&b.root, b.packed.count)
	}
	return b.ids
}

// Signatures returns the signatures.
func (b *Bundle) Signatures() []Signature { return b.signatures }

// Root returns the RFC 6962 Merkle root over the ids, or over the parts of a packed bundle. The
// signatures sign it.
func (b *Bundle) Root() Hash { return b.root }

// Seal returns what a block keeps of the bundle beside the transactions. Kept marks the
// transactions that are in the block, which must be all of a packed bundle.
func (b *Bundle) Seal(kept []bool) BundleSeal {
	if b.packed != nil {
		kept = nil
	}
	return BundleSeal{IDs: b.ids, Kept: kept, Signatures: b.signatures, Root: b.root, tree: b.tree,
		packed: b.packed}
}

// Content returns all of a packed bundle but its signatures, and nil for any other bundle.
func (b *Bundle) Content() []byte {
	if b.packed == nil {
		return nil
	}
	return b.packed.content
}

// Encode returns the canonical encoding. It returns the same slice again until a signature is
// added. The slice is read-only.
func (b *Bundle) Encode() []byte {
	switch {
	case b.encoded != nil:
	case b.packed != nil:
		b.encoded = appendSignatures(slices.Clip(b.packed.content), b.signatures)
	default:
		b.encoded = encodeBundle(len(b.bodies), b.Body, b.signatures)
	}
	return b.encoded
}

func encodeBundle(count int, body func(int) []byte, signatures []Signature) []byte {
	size := 1 + 2*binary.MaxVarintLen16
	for i := range count {
		size += len(body(i)) + binary.MaxVarintLen32
	}
	for i := range signatures {
		size += 1 + len(signatures[i].Organisation) + 32 + 64
	}
	to := append(make([]byte, 0, size), bundleVersion)
	to = binary.AppendUvarint(to, uint64(count))
	for i := range count {
		to = codec.AppendString(to, body(i))
	}
	return appendSignatures(to, signatures)
}

// body reads a transaction's encoding and returns its place in data, of which r reads the end.
func (r *reader) body(data []byte) span {
	body := r.Bytes("bytes of transaction", MaxTransactionBytes)
	end := len(data) - len(r.Data)
	return span{uint32(end - len(body)), uint32(end)}
}

// isOf reports whether the bundle is what DecodeBundle makes of this encoding.
func (b *Bundle) isOf(encoded []byte) bool {
	return b != nil && b.decoded && bytes.Equal(b.encoded, encoded)
}

func appendSignatures(to []byte, signatures []Signature) []byte {
	to = binary.AppendUvarint(to, uint64(len(signatures)))
	for i := range signatures {
		to = codec.AppendString(to, signatures[i].Organisation)
		to = append(to, signatures[i].Key[:]...)
		to = append(to, signatures[i].Bytes[:]...)
	}
	return to
}

func (r *reader) signatures() []Signature {
	count := r.Count("signatures", MaxBundleSignatures, 97)
	if count == 0 {
		return nil
	}
	signatures := make([]Signature, count)
	for i := range signatures {
		signatures[i].Organisation = OrganisationName(r.String("bytes of organisation",
			MaxOrganisationName))
		copy(signatures[i].Key[:], r.Take(32))
		copy(signatures[i].Bytes[:], r.Take(64))
		if r.Err == nil && signatures[i].Organisation != Operator &&
			signatures[i].Organisation.Validate() != nil {
			r.Fail("signature of a malformed organisation")
		}
	}
	return signatures
}

// DecodeBundle decodes a bundle, or returns ErrMalformed, ErrName or ErrBundleSize. It checks names
// and bounds. It does not verify signatures, and does not check the rules that Validate checks. The
// bundle shares the memory of data, which must not change any more.
func DecodeBundle(data []byte) (*Bundle, error) {
	if len(data) > MaxBundleBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrBundleSize, len(data),
			MaxBundleBytes)
	}
	if len(data) > 0 && data[0] == packedBundleVersion {
		return decodePackedBundle(data)
	}
	r := read(data)
	if version := r.Byte(); version != bundleVersion {
		r.Fail("bundle version %d", version)
	}
	count := r.Count("transactions", MaxBundleTransactions, 2)
	if count == 0 {
		r.Fail("an empty bundle")
	}
	bundle := &Bundle{transactions: make([]Transaction, count), bodies: make([]span, count),
		memory: data, ids: make([]Hash, count), encoded: data, decoded: true}
	for i := range count {
		bundle.bodies[i] = r.body(data)
	}
	bundle.signatures = r.signatures()
	if err := r.End(); err != nil {
		return nil, err
	}
	postings := newPostingSlab(count)
	for i := range count {
		body := bundle.Body(i)
		if err := decodeClientBody(body, &bundle.transactions[i], postings); err != nil {
			return nil, fmt.Errorf("transaction %d: %w", i, err)
		}
		if bundle.transactions[i].Occurrence != nil {
			return nil, fmt.Errorf("transaction %d: %w: %w", i, ErrMalformed, errNotClients)
		}
		if bundle.transactions[i].alone() && count > 1 {
			return nil, fmt.Errorf("transaction %d: %w: %w", i, ErrMalformed, errNotAlone)
		}
	}
	hashBodies(bundle.ids, bundle.Body)
	bundle.hashIDs()
	return bundle, nil
}
