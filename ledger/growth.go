package ledger

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// growthVersion is the first byte of the body of a change of the book.
const growthVersion = 11

// BookChange changes the shards of a book of several shards, while it runs. It is one of:
//
//   - an addition of a shard below a running one;
//   - a move of an organisation to another shard;
//   - a settlement with a shard that is lost for good;
//   - a change of the tree, which hangs a shard below another one.
//
// As many operators sign it as the charter asks for. It concerns all shards (BookWide): it enters
// at the root and reaches each chain through the tree's streams. Any two shards order two
// transactions alike, so all shards make the change at the same place of their common order, and
// what comes after it finds the book as it is then, in every chain.
//
// Number is one above the number of changes that the signers saw. If there was another change
// since, this one is refused (BookOutdated). So it takes no nonce and does not expire. It is alone
// in its bundle, which may have a note besides, and a block takes no further bundle after it.
type BookChange struct {
	Number uint64 `json:"number"`
	// Exactly one of these is set.
	Addition *ShardAddition    `json:"addition,omitempty"`
	Move     *OrganisationMove `json:"move,omitempty"`
	Loss     *ShardLoss        `json:"loss,omitempty"`
	Rehang   *ShardRehang      `json:"rehang,omitempty"`
}

// ShardAddition adds a shard to the book. Its number is the number of shards before.
type ShardAddition struct {
	// Parent is the shard right above the new one.
	Parent ShardID `json:"parent"`
	// Members are the first members of the new shard, 1 to MaxMembers.
	Members []Member `json:"members"`
}

// OrganisationMove gives an organisation another home.
type OrganisationMove struct {
	Organisation OrganisationName `json:"organisation"`
	To           ShardID          `json:"to"`
}

// ShardLoss settles with a shard that will never come back: the others decide without it what waits
// for its verdicts.
type ShardLoss struct {
	Shard ShardID `json:"shard"`
}

// ShardRehang hangs a shard, with all that lies below it, below another shard than before.
type ShardRehang struct {
	Shard ShardID `json:"shard"`
	// Parent is the shard right above it from then on.
	Parent ShardID `json:"parent"`
}

// The kinds of changes of the book in their encoding.
const (
	additionKind = 1
	moveKind     = 2
	lossKind     = 3
	rehangKind   = 4
)

// checkForm checks the parts of a transaction that changes the book.
func (c *BookChange) checkForm(t *Transaction) error {
	kinds := 0
	for _, set := range []bool{c.Addition != nil, c.Move != nil, c.Loss != nil, c.Rehang != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Deadline != 0 || t.Change != nil || t.Verdict != nil ||
		t.Policy != nil || t.Charter != nil || t.Cancellation != nil || t.Asset != nil ||
		t.Account != nil:
		return fmt.Errorf("%w: a change of the book's shards stands alone in its transaction, and "+
			"does not expire", ErrMalformed)
	case t.Signer != Operator:
		return fmt.Errorf("%w: a change of the book's shards is the operators', not organisation "+
			"%s's", ErrMalformed, t.Signer)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	case kinds != 1:
		return fmt.Errorf("%w: a change of the book's shards with %d changes", ErrMalformed, kinds)
	case c.Number == 0:
		return fmt.Errorf("%w: a change of the book's shards has a number above 0", ErrMalformed)
	case c.Addition != nil:
		return c.Addition.checkForm()
	case c.Move != nil:
		if c.Number > math.MaxUint32 {
			return fmt.Errorf("%w: move %d", ErrMalformed, c.Number)
		}
		return c.Move.Organisation.Validate()
	case c.Rehang != nil && c.Number > MaxRehang:
		return fmt.Errorf("%w: change %d hangs a shard elsewhere", ErrMalformed, c.Number)
	}
	return nil
}

func (a *ShardAddition) checkForm() error {
	if a.Parent >= MaxShards {
		return fmt.Errorf("%w: a parent numbered %d, at most %d shards are allowed", ErrMalformed,
			a.Parent, MaxShards)
	}
	if err := validateAddedMembers(a.Members); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// alone reports whether a transaction that is no verdict has to be alone in its bundle.
func (t *Transaction) alone() bool { return t.Change != nil || t.Book != nil || t.Arrival != nil }

// appendBookChange appends the encoding of a transaction that changes the book: version 11, ledger,
// nonce, number, kind (1 addition, 2 move, 3 loss, 4 rehang), note; and between the kind and the
// note the parent and the members, or the organisation and the shard, or the shard, or the shard
// and its new parent.
func (t *Transaction) appendBookChange(to []byte) []byte {
	c := t.Book
	to = append(to, growthVersion)
	to = append(to, t.Ledger[:]...)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = binary.AppendUvarint(to, c.Number)
	switch {
	case c.Addition != nil:
		to = binary.AppendUvarint(append(to, additionKind), uint64(c.Addition.Parent))
		to = appendMembers(to, c.Addition.Members)
	case c.Move != nil:
		to = codec.AppendString(append(to, moveKind), c.Move.Organisation)
		to = binary.AppendUvarint(to, uint64(c.Move.To))
	case c.Loss != nil:
		to = binary.AppendUvarint(append(to, lossKind), uint64(c.Loss.Shard))
	case c.Rehang != nil:
		to = binary.AppendUvarint(append(to, rehangKind), uint64(c.Rehang.Shard))
		to = binary.AppendUvarint(to, uint64(c.Rehang.Parent))
	}
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodeBookChange(r *reader) {
	t.Signer = Operator
	t.Ledger = r.Hash()
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	c := &BookChange{Number: r.Uvarint()}
	switch kind := r.Byte(); kind {
	case additionKind:
		c.Addition = &ShardAddition{Parent: r.shard(), Members: r.members()}
	case moveKind:
		c.Move = &OrganisationMove{Organisation: OrganisationName(
			r.String("bytes of organisation", MaxOrganisationName)), To: r.shard()}
	case lossKind:
		c.Loss = &ShardLoss{Shard: r.shard()}
	case rehangKind:
		c.Rehang = &ShardRehang{Shard: r.shard(), Parent: r.shard()}
	default:
		r.Fail("kind %d of a change of the book", kind)
	}
	t.Book = c
	t.Note = r.Bytes("bytes of note", MaxNote)
}
