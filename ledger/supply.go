package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Asset is a registered asset, as a chain has it in its state.
type Asset struct {
	// Number counts the registered assets of the book in their order, from 1.
	Number uint32    `json:"number"`
	Name   AssetName `json:"name"`
	// Owner is the organisation that registered the asset, and alone may change it.
	Owner OrganisationName `json:"owner"`
	// Revision is the number of the last change of the terms; 1 after the registration.
	Revision uint64 `json:"revision"`
	// Registered is the height of the block with the registration. It differs between the chains
	// of a book, and is 0 if the chain began with the asset.
	Registered Height `json:"registered"`
	AssetTerms
	// Issuances are what each of the Issuers issued in this chain, in their order.
	Issuances []Issuance `json:"issuances,omitempty"`
}

// Issuance is what an organisation issued of an asset, since the asset was registered. Issued and
// redeemed are what the accounts of the organisation went further below zero, and back. So what
// nobody can spend but the issuer is not issued.
type Issuance struct {
	// Issued and Redeemed only grow. Redeemed is never more than Issued.
	Issued   Amount `json:"issued,omitzero"`
	Redeemed Amount `json:"redeemed,omitzero"`
	// Waiting is what transactions that wait for other shards may still issue.
	Waiting Amount `json:"waiting,omitzero"`
	// Arrived is the number of the move with which the organisation came to this shard, or 0. In a
	// book in which organisations move, the issuance with the greatest number counts.
	Arrived uint64 `json:"arrived,omitempty"`
}

// Outstanding returns what was issued and not redeemed.
func (i *Issuance) Outstanding() Amount { return i.Issued.Minus(i.Redeemed) }

// Committed returns how much of its allowance an issuer has used up, if what waits takes effect. It
// never wraps around: issuing refuses what would not fit.
func (i *Issuance) Committed(supply SupplyPolicy) Amount {
	sum, err := i.Issued.Add(i.Waiting)
	if err != nil {
		return MaxAmount
	}
	if supply == SupplyFixed {
		return sum
	}
	return sum.Minus(i.Redeemed)
}

// Supply is how much there is of an asset.
type Supply struct {
	Issued, Redeemed, Outstanding, Waiting Amount
}

// SupplyOf adds up the issuances of an asset, given as the chains of all shards have it. Each
// issuer counts where it came to last. It returns ErrMalformed if they are not of one asset, with
// the same owner and terms, or if an issuer issued in two shards without a move between them. It
// returns ErrOverflow if 128 bits do not hold the sum.
func SupplyOf(shards ...*Asset) (Supply, error) {
	var all Supply
	if len(shards) == 0 {
		return all, nil
	}
	for _, of := range shards {
		if of.Name != shards[0].Name || of.Number != shards[0].Number ||
			of.Owner != shards[0].Owner || len(of.Issuances) != len(of.Issuers) ||
			!of.equal(&shards[0].AssetTerms) {
			return Supply{}, fmt.Errorf("%w: asset %s differs between shards", ErrMalformed,
				shards[0].Name)
		}
	}
	for i := range shards[0].Issuers {
		last, home := IssuanceOf(i, shards...)
		for s, of := range shards {
			if each := of.Issuances[i]; ShardID(s) != home && each.Arrived == last.Arrived &&
				each != (Issuance{Arrived: each.Arrived}) {
				return Supply{}, fmt.Errorf("%w: %s issued %s in shards %d and %d at once",
					ErrMalformed, of.Issuers[i].Organisation, of.Name, home, s)
			}
		}
		for _, sum := range []struct {
			to   *Amount
			more Amount
		}{{&all.Issued, last.Issued}, {&all.Redeemed, last.Redeemed},
			{&all.Outstanding, last.Outstanding()}, {&all.Waiting, last.Waiting}} {
			var err error
			if *sum.to, err = sum.to.Add(sum.more); err != nil {
				return Supply{}, err
			}
		}
	}
	return all, nil
}

// IssuanceOf returns what an issuer, given by its place, issued of an asset: what the shard says to
// which it came last, and which of the shards that is. The shards have the same terms (SupplyOf).
func IssuanceOf(issuer int, shards ...*Asset) (last Issuance, shard ShardID) {
	for s, of := range shards {
		// Before any move, an issuer has something in one shard only.
		if each := of.Issuances[issuer]; s == 0 || each.Arrived > last.Arrived ||
			each.Arrived == last.Arrived && last == (Issuance{Arrived: last.Arrived}) &&
				each != last {
			last, shard = each, ShardID(s)
		}
	}
	return last, shard
}

// kindAsset is the first byte of the key of an asset's entry in the state.
const kindAsset = 's'

// assetKeySize is the size of that key.
const assetKeySize = 1 + 4 + 1

// AppendEntry appends the entry of the asset in a state: the key, which has the number, and the
// name, owner, revision, height, terms and, for each issuer, what it issued. It returns the length
// of the key.
func (a *Asset) AppendEntry(to []byte) (entry []byte, keyLength int) {
	to = append(binary.BigEndian.AppendUint32(append(to, kindAsset), a.Number), 0)
	to = codec.AppendString(to, a.Name)
	to = codec.AppendString(to, a.Owner)
	to = binary.AppendUvarint(to, a.Revision)
	to = binary.AppendUvarint(to, uint64(a.Registered))
	to = a.append(to)
	for i := range a.Issuances {
		each := &a.Issuances[i]
		to = appendAmount(appendAmount(appendAmount(to, each.Issued), each.Redeemed), each.Waiting)
		to = binary.AppendUvarint(to, each.Arrived)
	}
	return to, assetKeySize
}

// IsAssetKey reports whether an entry of a state with this key is one of an asset.
func IsAssetKey(key []byte) bool { return len(key) == assetKeySize && key[0] == kindAsset }

// DecodeAsset decodes the entry of an asset in a state, or returns ErrMalformed or ErrName.
func DecodeAsset(key, value []byte) (*Asset, error) {
	if !IsAssetKey(key) || key[assetKeySize-1] != 0 {
		return nil, fmt.Errorf("%w: key %x of an asset", ErrMalformed, key)
	}
	r := read(value)
	a := &Asset{Number: binary.BigEndian.Uint32(key[1:]),
		Name:     AssetName(r.String("bytes of asset", MaxAssetName)),
		Owner:    OrganisationName(r.String("bytes of organisation", MaxOrganisationName)),
		Revision: r.Uvarint(), Registered: Height(r.Uvarint()), AssetTerms: r.assetTerms()}
	if r.Err == nil {
		a.Issuances = make([]Issuance, len(a.Issuers))
	}
	for i := range a.Issuances {
		a.Issuances[i] = Issuance{Issued: r.amount(), Redeemed: r.amount(), Waiting: r.amount(),
			Arrived: r.Uvarint()}
		if each := &a.Issuances[i]; each.Issued.Compare(each.Redeemed) < 0 ||
			each.Redeemed.Sign() < 0 || each.Waiting.Sign() < 0 {
			r.Fail("an issuance out of bounds")
		}
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	if a.Number == 0 || a.Number > MaxRegisteredAssets || a.Revision == 0 {
		return nil, fmt.Errorf("%w: asset %d, revision %d", ErrMalformed, a.Number, a.Revision)
	}
	for _, err := range []error{a.Name.Validate(), a.Owner.Validate(), a.Validate()} {
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// The state digest has a Merkle tree over the assets, in the order of their numbers. Its nodes have
// four children, as those over the accounts.
const (
	assetTreeArity    = 4
	assetDigestDomain = "ledgerd/state/4\x00"
	stateDigestDomain = "ledgerd/state/2\x00"
	// maxAssetLevels is the number of levels of a tree over MaxRegisteredAssets.
	maxAssetLevels = 8
)

// AssetRoot is what the state digest has of all assets: how many there are, and the root of the
// tree over their entries, which is zero if there are none.
type AssetRoot struct {
	Count uint32 `json:"count"`
	Root  Hash   `json:"root"`
}

// Digest returns the digest of all entries of a state but its accounts, given that of those that
// are no assets either.
func (a AssetRoot) Digest(others Hash) Hash {
	to := append(make([]byte, 0, len(assetDigestDomain)+4+2*HashSize), assetDigestDomain...)
	to = binary.BigEndian.AppendUint32(to, a.Count)
	return sha256.Sum256(append(append(to, a.Root[:]...), others[:]...))
}

// AssetLeaf returns the hash of the leaf of an asset, given its entry.
func AssetLeaf(entry []byte) Hash { return sum256([]byte{0}, entry) }

// AssetNode returns the hash of a node over one to four children.
func AssetNode(children []Hash) Hash {
	if len(children) == 1 {
		return children[0]
	}
	to := append(make([]byte, 0, 1+assetTreeArity*HashSize), 1)
	for i := range children {
		to = append(to, children[i][:]...)
	}
	return sha256.Sum256(to)
}

// AssetProof proves what a chain has of an asset, its supply included, as of a block. It needs the
// block's header, of which the reader has to know from a certificate that it is final.
type AssetProof struct {
	// Entry is the asset's entry in the state: the key, of 6 bytes, and the value.
	Entry []byte `json:"entry"`
	// Path has, from the leaves up, the hashes of all children of each node above the entry: the
	// entry's own one included.
	Path [][]Hash `json:"path"`
	// Assets is the tree's root and size, Others the digest of the entries that are neither assets
	// nor accounts, and Accounts and AccountRoot the number of accounts and the root over them.
	Assets      AssetRoot `json:"assets"`
	Others      Hash      `json:"others"`
	Accounts    uint64    `json:"accounts"`
	AccountRoot Hash      `json:"account_root"`
	// Header is the block's encoded header. Its hash is the block's.
	Header []byte `json:"header"`
}

// VerifyAssetProof returns the asset that a proof proves, the header of the block and the block's
// hash. It returns ErrProof if the proof does not hold. It does not check that the block is one of
// the chain: its hash has to be certified.
func VerifyAssetProof(p *AssetProof) (*Asset, Header, Hash, error) {
	fail := func(why string, arguments ...any) (*Asset, Header, Hash, error) {
		return nil, Header{}, Hash{}, fmt.Errorf("%w: %s", ErrProof, fmt.Sprintf(why, arguments...))
	}
	if len(p.Entry) < assetKeySize {
		return fail("an entry of %d bytes", len(p.Entry))
	}
	asset, err := DecodeAsset(p.Entry[:assetKeySize], p.Entry[assetKeySize:])
	if err != nil {
		return fail("%v", err)
	}
	if again, _ := asset.AppendEntry(nil); !bytes.Equal(again, p.Entry) {
		return fail("an entry that is not encoded as its content is")
	}
	header, err := DecodeHeader(p.Header)
	if err != nil {
		return fail("%v", err)
	}
	hash, place, count := AssetLeaf(p.Entry), asset.Number-1, p.Assets.Count
	if place >= count || len(p.Path) > maxAssetLevels {
		return fail("asset %d of %d", asset.Number, count)
	}
	for _, children := range p.Path {
		first := place / assetTreeArity * assetTreeArity
		if want := min(assetTreeArity, count-first); count <= 1 || len(children) != int(want) ||
			children[place-first] != hash {
			return fail("a path that does not lead from the entry to the root")
		}
		hash, place = AssetNode(children), place/assetTreeArity
		count = (count + assetTreeArity - 1) / assetTreeArity
	}
	if count != 1 || hash != p.Assets.Root {
		return fail("a path that does not lead from the entry to the root")
	}
	others := p.Assets.Digest(p.Others)
	to := append(make([]byte, 0, len(stateDigestDomain)+8+2*HashSize), stateDigestDomain...)
	to = binary.BigEndian.AppendUint64(to, p.Accounts)
	digest := Hash(sha256.Sum256(append(append(to, p.AccountRoot[:]...), others[:]...)))
	if digest != header.StateDigest {
		return fail("the state digest of block %d is another one", header.Height)
	}
	return asset, header, header.Hash(), nil
}

// assetProofVersion is the first byte of an encoded AssetProof.
const assetProofVersion = 1

// maxAssetEntry bounds the bytes of an asset's entry.
const maxAssetEntry = 32 << 10

// Encode returns the canonical encoding: version 1, entry, levels of the path each with its hashes,
// assets, others, accounts, root over the accounts, header.
func (p *AssetProof) Encode() []byte {
	to := codec.AppendString([]byte{assetProofVersion}, p.Entry)
	to = binary.AppendUvarint(to, uint64(len(p.Path)))
	for _, children := range p.Path {
		to = binary.AppendUvarint(to, uint64(len(children)))
		for i := range children {
			to = append(to, children[i][:]...)
		}
	}
	to = append(binary.AppendUvarint(to, uint64(p.Assets.Count)), p.Assets.Root[:]...)
	to = binary.AppendUvarint(append(to, p.Others[:]...), p.Accounts)
	return append(append(to, p.AccountRoot[:]...), p.Header...)
}

// DecodeAssetProof decodes what Encode returns, or returns ErrMalformed. It verifies nothing.
func DecodeAssetProof(data []byte) (*AssetProof, error) {
	r := read(data)
	if version := r.Byte(); version != assetProofVersion {
		r.Fail("asset proof version %d", version)
	}
	p := &AssetProof{Entry: r.Bytes("bytes of an asset", maxAssetEntry)}
	p.Path = make([][]Hash, r.Count("levels", maxAssetLevels, 1))
	for level := range p.Path {
		p.Path[level] = make([]Hash, r.Count("hashes", assetTreeArity, HashSize))
		for i := range p.Path[level] {
			p.Path[level][i] = r.Hash()
		}
	}
	p.Assets = AssetRoot{Count: r.Uvarint32("assets"), Root: r.Hash()}
	p.Others, p.Accounts, p.AccountRoot = r.Hash(), r.Uvarint(), r.Hash()
	p.Header = r.Take(HeaderSize)
	return p, r.End()
}
