package ledger

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// SupplyProof proves the supply of an asset to a reader that has the genesis and nothing else: for
// each shard of the book, in their order, what its chain has of the asset, and the certificates
// that make the block final.
type SupplyProof struct {
	Shards []FinalAssetProof
}

// FinalAssetProof is what a chain has of an asset, with the certificates of the block.
type FinalAssetProof struct {
	Proof    *AssetProof
	Finality *Finality
}

const (
	// supplyProofVersion follows that of the proof of a balance.
	supplyProofVersion = 5
	// maxAssetProof bounds the encoding of an AssetProof: its entry, path, roots and header.
	maxAssetProof = maxAssetEntry + maxAssetLevels*(1+assetTreeArity*HashSize) + 4096
)

// VerifyFinalAssetProof returns the asset that a proof proves, and the header of the block. The
// genesis is that of the shard. It returns ErrProof or ErrCertificate if the proof does not hold.
func VerifyFinalAssetProof(p *FinalAssetProof, genesis *Genesis) (*Asset, Header, error) {
	asset, header, hash, err := VerifyAssetProof(p.Proof)
	if err == nil {
		err = NewAuditor(genesis).Verify(p.Finality, header.Height, hash)
	}
	if err != nil {
		return nil, Header{}, err
	}
	return asset, header, nil
}

// Encode returns the canonical encoding: version 5, and a list with, for each shard, the encoded
// AssetProof and the encoded Finality, each as a string.
func (p *SupplyProof) Encode() []byte {
	to := binary.AppendUvarint([]byte{supplyProofVersion}, uint64(len(p.Shards)))
	for i := range p.Shards {
		to = codec.AppendString(to, p.Shards[i].Proof.Encode())
		to = codec.AppendString(to, p.Shards[i].Finality.Encode())
	}
	return to
}

// IsSupplyProof reports whether data begins like the encoding of a SupplyProof.
func IsSupplyProof(data []byte) bool { return len(data) > 0 && data[0] == supplyProofVersion }

// DecodeSupplyProof decodes what SupplyProof.Encode returned, or returns ErrMalformed. It verifies
// nothing. The proof shares the memory of data.
func DecodeSupplyProof(data []byte) (*SupplyProof, error) {
	r := read(data)
	if version := r.Byte(); version != supplyProofVersion {
		r.Fail("supply proof version %d", version)
	}
	p := &SupplyProof{Shards: make([]FinalAssetProof, r.Count("shards", MaxShards, 2))}
	for shard := range p.Shards {
		proof := r.Bytes("bytes of an asset's proof", maxAssetProof)
		finality := r.Bytes("bytes of finality", MaxFinalityBytes)
		if r.Err != nil {
			return nil, r.Err
		}
		var err error
		if p.Shards[shard].Proof, err = DecodeAssetProof(proof); err == nil {
			p.Shards[shard].Finality, err = DecodeFinality(finality)
		}
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return p, nil
}
