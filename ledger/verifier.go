package ledger

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/oasisprotocol/curve25519-voi/primitives/ed25519"
	"github.com/oasisprotocol/curve25519-voi/primitives/ed25519/extra/cache"
)

// Verifier verifies signatures. It remembers the expanded keys of the most recent signers, and the
// last good signatures, which it does not verify again, and the last entries of a parent's stream,
// which it does not decode again. All verifiers agree on every signature, in
// a batch or alone, whatever they remember: each signature is verified with the cofactor and must
// have a key of large order. It is safe for concurrent use.
type Verifier struct {
	keys *cache.Verifier

	mu sync.Mutex
	// recent and older hold signatures that were found to be good, by their message: a node
	// verifies a bundle when it admits it, and again meets it in the round that it proposed.
	// signatures counts those of recent.
	recent, older map[string][][96]byte
	signatures    int
	entries       decodedEntries
}

const (
	// verifierKeys is how many expanded keys a Verifier remembers, at about 1.3 kB each.
	verifierKeys = 4096
	// verifierMessages and verifierSignatures are how many messages recent and older each hold, and
	// how many signatures in all.
	verifierMessages   = 1 << 15
	verifierSignatures = 1 << 16
	// alone is how many signatures are verified faster one by one than in a batch.
	alone = 2
)

// NewVerifier makes a verifier that remembers nothing yet.
func NewVerifier() *Verifier {
	return &Verifier{keys: cache.NewVerifier(cache.NewLRUCache(verifierKeys)),
		recent: make(map[string][][96]byte)}
}

// sealOf returns the bytes of a signature and its key.
func sealOf(s *Signature) (seal [96]byte) {
	copy(seal[:], s.Key[:])
	copy(seal[len(s.Key):], s.Bytes[:])
	return seal
}

// known reports whether all signatures of a message were found to be good before. It compares them
// as a whole, so there is nothing to collide.
func (v *Verifier) known(all *signed) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	good, found := v.recent[string(all.message)]
	if !found {
		good = v.older[string(all.message)]
	}
	for i := range all.signatures {
		if !slices.Contains(good, sealOf(&all.signatures[i])) {
			return false
		}
	}
	return len(all.signatures) > 0
}

// remember records that all signatures of a message are good, beside others that it knows of that
// message: members of a shard sign the same voucher.
func (v *Verifier) remember(all *signed) {
	if len(all.signatures) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.recent) >= verifierMessages ||
		v.signatures+len(all.signatures) > verifierSignatures {
		v.recent, v.older = make(map[string][][96]byte, verifierMessages), v.recent
		v.signatures = 0
	}
	good := v.recent[string(all.message)]
	before := len(good)
	for i := range all.signatures {
		if seal := sealOf(&all.signatures[i]); !slices.Contains(good, seal) {
			good = append(good, seal)
		}
	}
	if more := len(good) - MaxBundleSignatures; more > 0 {
		good = good[more:]
	}
	v.recent[string(all.message)] = good
	v.signatures += len(good) - before
}

// verifier is the package's own.
var verifier = NewVerifier()

// verify verifies one signature of a message.
func (s *Signature) verify(message []byte) bool {
	return verifier.keys.Verify(s.Key[:], message, s.Bytes[:])
}

// good verifies one signature of a message, unless it is known. It leaves what is remembered of the
// message, which may be more signatures than this one.
func (v *Verifier) good(s *Signature, message []byte) bool {
	return v.known(&signed{message: message, signatures: []Signature{*s}}) ||
		v.keys.Verify(s.Key[:], message, s.Bytes[:])
}

// signed is a message with the signatures that belong to it.
type signed struct {
	message    []byte
	signatures []Signature
}

// verify verifies all signatures, in one batch. It returns the index of a wrong signature, or -1,
// for each element.
func (v *Verifier) verify(all []signed) []int {
	wrong := make([]int, len(all))
	places := make([]int, 0, len(all)) // of the elements that are not known
	count := 0
	for i := range all {
		wrong[i] = -1
		if !v.known(&all[i]) {
			places = append(places, i)
			count += len(all[i].signatures)
		}
	}
	v.find(all, places, count, wrong)
	for _, i := range places {
		if wrong[i] < 0 {
			v.remember(&all[i])
		}
	}
	return wrong
}

// find sets wrong for the elements at places, which have count signatures.
func (v *Verifier) find(all []signed, places []int, count int, wrong []int) {
	if count <= alone {
		for _, i := range places {
			for j := range all[i].signatures {
				s := &all[i].signatures[j]
				if wrong[i] < 0 && !v.keys.Verify(s.Key[:], all[i].message, s.Bytes[:]) {
					wrong[i] = j
				}
			}
		}
		return
	}
	batch := ed25519.NewBatchVerifierWithCapacity(count)
	for _, i := range places {
		for j := range all[i].signatures {
			s := &all[i].signatures[j]
			v.keys.Add(batch, s.Key[:], all[i].message, s.Bytes[:])
		}
	}
	good, each := batch.Verify(rand.Reader)
	if good {
		return
	}
	at := 0
	for _, i := range places {
		for j := range all[i].signatures {
			if !each[at] && wrong[i] < 0 {
				wrong[i] = j
			}
			at++
		}
	}
}

// Bundles verifies the signatures of bundles, and nothing else. It returns nil or an error that
// matches ErrSignature for each bundle.
func (v *Verifier) Bundles(bundles []*Bundle) []error {
	all := make([]signed, len(bundles))
	for i, bundle := range bundles {
		all[i] = signed{bundle.SigningMessage(), bundle.signatures}
	}
	failures := make([]error, len(bundles))
	for i, at := range v.verify(all) {
		if at >= 0 {
			failures[i] = signatureError(&bundles[i].signatures[at])
		}
	}
	return failures
}

// VerifiedBatch is a batch as a round's block is made of it: decoded, and with all signatures
// verified. It depends on the batch's bytes alone, so all nodes get the same.
type VerifiedBatch struct {
	*Batch
	// Proposals are the bundles of Batch.Bundles, in their order.
	Proposals []Proposal
	// Stream are the bundles of Batch.Carried, in their order. For each, Kept says which
	// transactions it has.
	Stream []Proposal
	// StreamHashes are the CarriedHash of each of these bundles, if the batch has a voucher.
	StreamHashes []Hash
	// GroupIDs are the ids of Batch.Groups, in their order.
	GroupIDs []Hash
	// VoucherErr is nil if the batch has no voucher or its key signed it. Otherwise it matches
	// ErrSignature.
	VoucherErr error
}

// Proposal is a decoded bundle of a batch.
type Proposal struct {
	*Bundle
	Kept []bool
	// Err is nil for a bundle that may be executed. It matches ErrSignature if a signature is
	// wrong: the proposer forged it, since every correct node verifies what it proposes. Any other
	// error means that the bundle cannot be decoded, and Bundle is nil.
	Err error
}

// Forged returns the number of bundles with a wrong signature, and the error of the first one. A
// voucher with a wrong signature counts as a bundle.
func (b *VerifiedBatch) Forged() (bundles int, first error) {
	if b.VoucherErr != nil {
		bundles, first = 1, b.VoucherErr
	}
	for _, proposals := range [][]Proposal{b.Proposals, b.Stream} {
		for i := range proposals {
			if err := proposals[i].Err; errors.Is(err, ErrSignature) {
				bundles++
				first = cmp.Or(first, err)
			}
		}
	}
	return bundles, first
}

// Batch decodes a batch and its bundles and verifies their signatures. It returns an error only if
// the batch itself cannot be decoded. Once the packed bundles have more than MaxBatchPacked
// transfers, they and all packed bundles after them get an error. The result shares the memory of
// data.
func (v *Verifier) Batch(data []byte) (*VerifiedBatch, error) { return v.batch(data, nil) }

// batch is Batch. It does not decode the bundles that find has.
func (v *Verifier) batch(data []byte, find func(encoded []byte) *Bundle) (*VerifiedBatch, error) {
	batch, err := DecodeBatch(data)
	if err != nil {
		return nil, err
	}
	verified := &VerifiedBatch{Batch: batch, Proposals: make([]Proposal, len(batch.Bundles)),
		Stream: make([]Proposal, len(batch.Carried)), GroupIDs: batch.groupIDs()}
	all := make([]signed, 0, len(batch.Bundles)+len(batch.Carried))
	places := make([]*Proposal, 0, cap(all))
	add := func(p *Proposal) {
		if p.Err != nil {
			p.Bundle, p.Kept = nil, nil
			return
		}
		all, places = append(all, signed{p.SigningMessage(), p.signatures}), append(places, p)
	}
	packed := 0
	for i, encoded := range batch.Bundles {
		p := &verified.Proposals[i]
		transfers, _ := packedSizes(encoded)
		if packed += transfers; packed > MaxBatchPacked && len(encoded) > 0 &&
			encoded[0] == packedBundleVersion {
			p.Err = fmt.Errorf("%w: a batch with more than %d packed transfers", ErrBundleSize,
				MaxBatchPacked)
			continue
		}
		if find != nil {
			p.Bundle = find(encoded)
		}
		if !p.Bundle.isOf(encoded) {
			p.Bundle, p.Err = DecodeBundle(encoded)
		}
		add(p)
	}
	if batch.Voucher != nil {
		verified.StreamHashes = make([]Hash, len(batch.Carried))
	}
	for i := range batch.Carried {
		p, encoded := &verified.Stream[i], batch.Carried[i].Bundle
		if batch.Voucher != nil {
			verified.StreamHashes[i] = CarriedHash(encoded)
			p.Bundle, p.Kept, p.Err = v.entries.decode(encoded, verified.StreamHashes[i])
		} else {
			p.Bundle, p.Kept, p.Err = DecodeCarried(encoded)
		}
		add(p)
	}
	if batch.Voucher != nil {
		all = append(all, signed{batch.voucherMessage(verified.GroupIDs),
			[]Signature{{Key: batch.Voucher.Key, Bytes: batch.Voucher.Signature}}})
	}
	for i, at := range v.verify(all) {
		switch {
		case at < 0:
		case i < len(places):
			places[i].Err = signatureError(&places[i].signatures[at])
		default:
			verified.VoucherErr = fmt.Errorf("%w: the voucher of the member with key %s",
				ErrSignature, batch.Voucher.Key)
		}
	}
	return verified, nil
}

// VerifyBatch is Verifier.Batch of a verifier that the whole process shares.
func VerifyBatch(data []byte) (*VerifiedBatch, error) { return verifier.Batch(data) }

// VerifyBatchWith is VerifyBatch for a node that may have decoded some bundles before, when it
// admitted them. find returns the bundle with an encoding, or nil. What DecodeBundle made from the
// same bytes is not decoded again; anything else that find returns is ignored. So the result is the
// same as that of VerifyBatch, but also shares the memory of these bundles. A nil find finds
// nothing.
func VerifyBatchWith(data []byte, find func(encoded []byte) *Bundle) (*VerifiedBatch, error) {
	return verifier.batch(data, find)
}

// VerifyBatches verifies the batches of a round, one after the other. It leaves out empty ones. The
// result has nil for a batch that cannot be decoded.
func VerifyBatches(batches [][]byte) []*VerifiedBatch {
	all := make([]*VerifiedBatch, 0, len(batches))
	for _, data := range batches {
		if len(data) > 0 {
			verified, _ := VerifyBatch(data)
			all = append(all, verified)
		}
	}
	return all
}

// VerifySignatures verifies all signatures of a block, in one batch. It does not check that the
// keys were registered; executing the block does.
func VerifySignatures(block *Block) error {
	all := make([]signed, len(block.Bundles))
	for i := range block.Bundles {
		seal := &block.Bundles[i]
		all[i] = signed{signingMessage(seal.Root, seal.Packed()), seal.Signatures}
	}
	for i, at := range verifier.verify(all) {
		if at >= 0 {
			return fmt.Errorf("bundle %d: %w", i, signatureError(&block.Bundles[i].Signatures[at]))
		}
	}
	return nil
}
