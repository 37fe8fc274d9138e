package ledger

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// packedBodyVersion is the first byte of what shows a transfer of a packed bundle.
const packedBodyVersion = 8

// packedBody is what shows one transfer of a packed bundle: the parts that it is in.
type packedBody struct {
	packedHead
	place  int
	record packedRecord
	// parts are the head, the part with the name of the account that gives, that with the name of
	// the other one unless it is the same, and the part with the record. places are their places
	// among the bundle's parts.
	parts    [][]byte
	places   []int
	from, to AccountPath
}

// body returns what shows the transfer at a place.
func (p *packed) body(place int) []byte {
	part, record := 1+partsOf(p.names)+place/packedPart, p.record(place)
	to := codec.AppendString([]byte{packedBodyVersion}, p.part(0))
	to = binary.AppendUvarint(to, uint64(place))
	to = codec.AppendString(to, p.part(1+record.from/packedPart))
	if record.to/packedPart == record.from/packedPart {
		to = append(to, 0)
	} else {
		to = codec.AppendString(to, p.part(1+record.to/packedPart))
	}
	return codec.AppendString(to, p.part(part))
}

// decodePackedBody decodes what packed.body returns.
func decodePackedBody(body []byte) (*packedBody, error) {
	r := read(body)
	if version := r.Byte(); version != packedBodyVersion {
		r.Fail("transaction version %d", version)
	}
	b := &packedBody{}
	text := func() []byte { return r.Bytes("bytes of a bundle's part", MaxTransactionBytes) }
	add := func(place int, part []byte) {
		b.parts, b.places = append(b.parts, part), append(b.places, place)
	}
	add(0, text())
	place := r.Uvarint()
	from, to, records := text(), text(), text()
	if err := r.End(); err != nil {
		return nil, err
	}
	head := read(b.parts[0])
	b.packedHead = head.packedHead()
	if err := head.End(); err != nil {
		return nil, err
	}
	if place >= uint64(b.count) {
		return nil, fmt.Errorf("%w: transfer %d of %d", ErrMalformed, place, b.count)
	}
	b.place = int(place)
	if err := b.readRecord(records); err != nil {
		return nil, err
	}
	first, second := b.record.from/packedPart, b.record.to/packedPart
	if (len(to) == 0) != (first == second) {
		return nil, fmt.Errorf("%w: the names of %d parts", ErrMalformed, len(b.parts))
	}
	add(1+first, from)
	if first == second {
		to = from
	} else {
		add(1+second, to)
	}
	add(1+partsOf(b.names)+b.place/packedPart, records)
	var err error
	if b.from, err = b.name(from, b.record.from); err == nil {
		b.to, err = b.name(to, b.record.to)
	}
	if err == nil && b.from == b.to {
		err = fmt.Errorf("%w: a transfer from an account to itself", ErrMalformed)
	}
	return b, err
}

// inPart returns how many of count items are in the part with one of them.
func inPart(item, count int) int { return min(packedPart, count-item/packedPart*packedPart) }

// readRecord reads the record from its part.
func (b *packedBody) readRecord(part []byte) error {
	if len(part) != inPart(b.place, b.count)*b.recordSize() {
		return fmt.Errorf("%w: a part of %d bytes with records", ErrMalformed, len(part))
	}
	r := read(part[b.place%packedPart*b.recordSize():][:b.recordSize()])
	b.record = r.packedRecord(&b.packedHead)
	return r.End()
}

// name returns the name with a number from its part.
func (b *packedBody) name(part []byte, number int) (AccountPath, error) {
	r := read(part)
	arena, ends := r.packedNames(inPart(number, b.names), nil, nil)
	if err := r.End(); err != nil {
		return "", err
	}
	names := packed{paths: string(arena), pathEnds: ends}
	if !checkPaths(names.paths, ends) {
		return "", fmt.Errorf("%w: a malformed account", ErrMalformed)
	}
	return names.path(number % packedPart), nil
}

// transaction returns the transfer.
func (b *packedBody) transaction() *Transaction {
	t := &Transaction{Postings: make([]Posting, 2)}
	b.transfer(t, b.place, b.from, b.to, &b.record)
	return t
}

// path returns the inclusion paths of the body's parts, one after the other, from the leaf hashes
// of all parts.
func (b *packedBody) path(leaves []Hash) (path []Hash) {
	for _, place := range b.places {
		path = append(path, merklePath(append([]Hash(nil), leaves...), place)...)
	}
	return path
}

// verify returns ErrProof unless path leads from the body's parts to the bundle's root.
func (b *packedBody) verify(path []Hash, root Hash) error {
	for i, place := range b.places {
		length := pathLength(place, b.packedHead.parts())
		if len(path) < length {
			return fmt.Errorf("%w: a path of %d hashes is missing", ErrProof, length)
		}
		if err := verifyPath(leafHash(b.parts[i]), uint64(place), uint64(b.packedHead.parts()),
			path[:length], root); err != nil {
			return err
		}
		path = path[length:]
	}
	if len(path) != 0 {
		return fmt.Errorf("%w: %d hashes too many", ErrProof, len(path))
	}
	return nil
}

// pathLength returns the number of hashes in the inclusion path of a leaf.
func pathLength(index, size int) (length int) {
	for ; size > 1; index, size = index/2, (size+1)/2 {
		if index^1 < size {
			length++
		}
	}
	return length
}
