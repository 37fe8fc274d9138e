package store

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Asset returns a registered asset, as of the head.
func (s *Store) Asset(name ledger.AssetName) (ledger.Asset, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found, known := s.state.Asset(name)
	if !known {
		return ledger.Asset{}, false
	}
	return copyOfAsset(found), true
}

// Assets returns registered assets in the order of their registrations, as of the head: at most so
// many, from the one after the number.
func (s *Store) Assets(after uint32, most int) (assets []ledger.Asset) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	for number := int(after) + 1; number <= s.state.AssetCount() && len(assets) < most; number++ {
		assets = append(assets, copyOfAsset(s.state.AssetAt(number)))
	}
	return assets
}

// copyOfAsset copies what later blocks change in place.
func copyOfAsset(found *ledger.Asset) ledger.Asset {
	asset := *found
	asset.Issuances = slices.Clone(found.Issuances)
	return asset
}

// ProveAsset returns the proof of an asset as of the head, and whether the asset is registered.
func (s *Store) ProveAsset(name ledger.AssetName) (*ledger.AssetProof, bool) {
	s.mutex.Lock() // the state brings its trees up to date
	defer s.mutex.Unlock()
	proof, known := s.state.ProveAsset(name)
	if known {
		proof.Header = s.head.Header.Encode()
	}
	return proof, known
}
