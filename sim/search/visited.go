package search

import "math/bits"

// fingerprint is a 128-bit hash of a state. The probability that two of k different states have the
// same one is about k²/2^129, or 10^-22 for 10^8 states.
type fingerprint [2]uint64

// fingerprintOf hashes a state with two 128-bit products per pair of words, as wyhash does.
func fingerprintOf(state []uint32) fingerprint {
	a, b := uint64(0x9e3779b97f4a7c15), uint64(0xd1b54a32d192ed03)
	for i := 0; i < len(state); i += 2 {
		word := uint64(state[i])
		if i+1 < len(state) {
			word |= uint64(state[i+1]) << 32
		}
		high, low := bits.Mul64(a^word, 0xa0761d6478bd642f)
		a = high ^ low
		high, low = bits.Mul64(b+word, 0xe7037ed1a0b428db)
		b = bits.RotateLeft64(high, 29) ^ low ^ a
	}
	f := fingerprint{a ^ a>>32, b ^ b>>29}
	if f == (fingerprint{}) {
		f[0] = 1 // the zero fingerprint marks free places
	}
	return f
}

// visited is the set of the visited states: open addressing, 16 bytes a place.
type visited struct {
	places []fingerprint
	mask   uint64
	count  int
}

const visitedPlacesFirst = 1 << 12

func newVisited() *visited {
	return &visited{places: make([]fingerprint, visitedPlacesFirst), mask: visitedPlacesFirst - 1}
}

// add reports whether the fingerprint is new.
func (v *visited) add(f fingerprint) bool {
	for at := f[0] & v.mask; ; at = (at + 1) & v.mask {
		switch v.places[at] {
		case f:
			return false
		case fingerprint{}:
			v.places[at] = f
			v.count++
			if v.count*4 > len(v.places)*3 {
				v.grow()
			}
			return true
		}
	}
}

func (v *visited) grow() {
	old := v.places
	v.places = make([]fingerprint, 2*len(old))
	v.mask = uint64(len(v.places) - 1)
	for _, f := range old {
		if f == (fingerprint{}) {
			continue
		}
		at := f[0] & v.mask
		for v.places[at] != (fingerprint{}) {
			at = (at + 1) & v.mask
		}
		v.places[at] = f
	}
}
