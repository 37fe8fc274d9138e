package state_test

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// crossed is shard 1 of a book of two shards with three members each, whose crossings are vouched
// for. A transfer between the shards is entry 4 of the stream to shard 1.
type crossed struct {
	t       *testing.T
	genesis *ledger.Genesis
	state   *state.State
	parent  state.Parent
	seen    map[ledger.Hash]bool
	// next is the next entry of the stream, and verdict the true verdict of shard 0 on it.
	next    ledger.Carried
	verdict ledger.Verdict
}

// newCrossed returns the shard before it takes the transfer from its parent's stream.
func newCrossed(t *testing.T) *crossed { return newCrossedOf(t, 0) }

// newCrossedOf is newCrossed in a chain of a version.
func newCrossedOf(t *testing.T, version int) *crossed {
	above := ledgertest.ShardedGenesis(3, 0, 0)
	above.Version = version
	above.VouchedCrossings = true
	below, err := above.ForShard(1)
	if err != nil {
		t.Fatal(err)
	}
	c := &crossed{t: t, genesis: below, state: state.New(below), seen: map[ledger.Hash]bool{},
		parent: state.Parent{Header: below.Block().Header, Hash: below.Hash()}}
	payer, payee := ledgertest.NewClient(above, "payer"), ledgertest.NewClient(above, "payee")
	register := func(client *ledgertest.Client, shard ledger.ShardID) *ledger.Bundle {
		registration := client.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, shard
		return client.Bundle(registration)
	}
	open := func(client *ledgertest.Client) ledger.Transaction {
		opening := client.Next()
		opening.Openings = []ledger.Opening{{Account: client.Account("issuer"), Issuer: true}}
		return opening
	}
	transfer := payer.Transfer
	if ledger.TakesDeadlines(version) {
		transfer = func(from, to ledger.AccountPath, amount int64) ledger.Transaction {
			crossing := payer.Transfer(from, to, amount)
			crossing.Deadline = above.Time + 5000
			return crossing
		}
	}
	root := state.New(above)
	parent := state.Parent{Header: above.Block().Header, Hash: above.Hash()}
	number := uint64(0)
	for _, bundle := range []*ledger.Bundle{register(payer, 0), register(payee, 1),
		payer.Bundle(open(payer)), payee.Bundle(open(payee)),
		payer.Bundle(transfer("payer:issuer", "payee:issuer", 5))} {
		draft := root.Seal(parent, 1, 1, ledger.VerifyBatches([][]byte{
			ledger.EncodeBatch(ledger.BatchHeader{Time: 1}, [][]byte{bundle.Encode()})}),
			func(ledger.Hash, *ledger.Transaction) bool { return false })
		if draft == nil {
			t.Fatal("no block")
		}
		block, changes := root.Execute(draft)
		parent = state.Parent{Header: block.Header, Hash: block.Hash}
		if len(changes.Forwards) == 0 {
			continue
		}
		if number > 0 && c.next.Number > c.state.Carried() {
			c.mustSeal(c.vouched(&ledger.Batch{Carried: []ledger.Carried{c.next}}, 3, 4))
		}
		number++
		c.next = ledger.Carried{Number: number, Bundle: block.CarriedBundle(0)}
		if len(changes.Verdicts) > 0 {
			c.verdict = changes.Verdicts[0].Verdict
		}
	}
	if c.verdict.Result.Code != ledger.SetAside || c.next.Number != 4 || c.state.Carried() != 3 {
		t.Fatalf("verdict %+v, entry %d after %d", c.verdict, c.next.Number, c.state.Carried())
	}
	return c
}

func (c *crossed) seal(payloads [][]byte) *state.Draft {
	// Changes of the members need rounds between them.
	return c.state.Seal(c.parent, 1, c.parent.Header.Round+100, ledger.VerifyBatches(payloads),
		func(id ledger.Hash, _ *ledger.Transaction) bool { return c.seen[id] })
}

func (c *crossed) mustSeal(payloads [][]byte) *ledger.Block {
	c.t.Helper()
	draft := c.seal(payloads)
	if draft == nil {
		c.t.Fatal("no block")
	}
	block, _ := c.state.Execute(draft)
	c.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	for i := range block.Len() {
		c.seen[block.Entry(i).ID] = true
	}
	return block
}

// vouched returns the batch as each of these members sends it. Members 3 to 5 are those of shard 1.
func (c *crossed) vouched(batch *ledger.Batch, members ...int) (payloads [][]byte) {
	for _, member := range members {
		own := *batch
		ledgertest.Vouch(c.genesis, ledgertest.Member(member).Name, &own)
		payloads = append(payloads, own.Encode())
	}
	return payloads
}

// A block takes an entry of the stream, or a verdict, only if a majority of the members of the
// shard vouch for the same in one round.
func TestVouchedByAMajority(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"entry", "verdict"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newCrossed(t)
			truth := &ledger.Batch{Carried: []ledger.Carried{c.next}}
			bundle, kept, err := ledger.DecodeCarried(c.next.Bundle)
			if err != nil {
				t.Fatal(err)
			}
			// A liar cannot forge the client's signature. It says that the entry is another bundle
			// that the client signed.
			other := (&ledger.Block{Unpacked: []ledger.Entry{{Body: bundle.Body(0)}},
				Bundles: []ledger.BundleSeal{{IDs: bundle.IDs(), Kept: kept,
					Signatures: slices.Repeat(bundle.Signatures(), 2)}}}).CarriedBundle(0)
			lie := &ledger.Batch{Carried: []ledger.Carried{{Number: 4, Bundle: other}}}
			if kind == "verdict" {
				c.mustSeal(c.vouched(truth, 3, 4, 5))
				truth = &ledger.Batch{Verdicts: []ledger.Verdict{c.verdict}}
				refused := c.verdict
				refused.Result = ledger.Result{Code: ledger.InsufficientFunds}
				lie = &ledger.Batch{Verdicts: []ledger.Verdict{refused}}
			}
			bare := truth.Encode()
			sharded := func(chain ledger.Hash) []byte {
				batch := *truth
				genesis := *c.genesis
				ledgertest.Vouch(&genesis, "node-4", &batch)
				batch.Vouch(ledgertest.Key("node-4"), chain, batch.Voucher.Stream)
				return batch.Encode()
			}
			twice := *truth
			twice.Verdicts = append(slices.Clone(truth.Verdicts), truth.Verdicts...)
			forged := *truth
			ledgertest.Vouch(c.genesis, "node-3", &forged)
			forged.Voucher.Key = ledgertest.PublicKey("node-4")
			for name, payloads := range map[string][][]byte{
				"nobody":                            {bare, bare, bare},
				"one member":                        c.vouched(truth, 3),
				"one member, repeated":              c.vouched(truth, 3, 3, 3),
				"one member, repeated in its batch": c.vouched(&twice, 3),
				"one, and others without a word": append(c.vouched(truth, 3), bare,
					ledger.EncodeBatch(ledger.BatchHeader{}, nil)),
				"one, and members of shard 0": c.vouched(truth, 3, 0, 1, 2),
				"one, and a forged voucher":   append(c.vouched(truth, 3), forged.Encode()),
				"one, and a voucher of another chain": append(c.vouched(truth, 3),
					sharded(ledger.Hash{7})),
				"each something else": append(c.vouched(truth, 3), c.vouched(lie, 4)...),
				"a lie":               c.vouched(lie, 5, 5),
			} {
				if draft := c.seal(payloads); draft != nil {
					t.Errorf("%s: a block of %d", name, draft.Len())
				}
			}
			taken := [][][]byte{c.vouched(truth, 3, 5), c.vouched(truth, 3, 4, 5),
				append(c.vouched(lie, 4), c.vouched(truth, 3, 5)...),
				append(c.vouched(truth, 5), sharded(c.genesis.Hash()))}
			for i, payloads := range taken {
				draft := c.seal(payloads)
				if draft == nil || draft.Len() != 1 || (draft.Unvouched > 0) != (i == 2) {
					t.Errorf("vouched for %d: %+v", i, draft)
				}
			}
			block := c.mustSeal(taken[2])
			if got := block.Entry(0).Result.Code; kind == "verdict" && got != ledger.Settled ||
				kind == "entry" && (got != ledger.SetAside ||
					!slices.Equal(block.CarriedBundle(0), c.next.Bundle)) {
				t.Errorf("the result is %s", got)
			}
		})
	}
}

// Members that only vouch for an entry, and carry another one or none, count for it.
func TestVouchedWithoutCarrying(t *testing.T) {
	t.Parallel()
	c := newCrossed(t)
	silent := &ledger.Batch{}
	silent.Vouch(ledgertest.Key("node-4"), c.genesis.Hash(), []ledger.Vouched{
		{Number: c.next.Number, Hash: ledger.CarriedHash(c.next.Bundle)}})
	carrier := &ledger.Batch{Carried: []ledger.Carried{c.next}}
	carrier.Vouch(ledgertest.Key("node-3"), c.genesis.Hash(), nil)
	if draft := c.seal([][]byte{carrier.Encode()}); draft != nil {
		t.Errorf("no member vouches: %+v", draft)
	}
	third := *silent
	third.Vouch(ledgertest.Key("node-5"), c.genesis.Hash(), silent.Voucher.Stream)
	if draft := c.seal([][]byte{carrier.Encode(), silent.Encode()}); draft != nil {
		t.Errorf("the carrier does not vouch, and one other member does: %+v", draft)
	}
	if draft := c.seal([][]byte{silent.Encode(), third.Encode()}); draft != nil {
		t.Errorf("no member carries the entry: %+v", draft)
	}
	if draft := c.seal([][]byte{carrier.Encode(), silent.Encode(), third.Encode()}); draft == nil {
		t.Error("two members vouch for what the third carries")
	}
	// Another entry before it in the batch, which no member vouches for, does not hide it.
	carrier.Carried = []ledger.Carried{{Number: c.next.Number, Bundle: []byte{1}}, c.next}
	if draft := c.seal([][]byte{silent.Encode(), third.Encode(), carrier.Encode()}); draft == nil {
		t.Error("two members vouch for the second entry that the third carries")
	}
	carrier.Voucher.Signature[0] ^= 1
	if draft := c.seal([][]byte{carrier.Encode(), silent.Encode(), third.Encode()}); draft == nil {
		t.Error("two members vouch for what the third carries under a forged voucher")
	}
}

// Only the members before the block count: a member that left does not, and more members need a
// larger majority.
func TestVouchersOfTheMembersBefore(t *testing.T) {
	t.Parallel()
	c := newCrossed(t)
	operator := ledgertest.NewOperator(c.genesis)
	change := func(bundle *ledger.Bundle) {
		block := c.mustSeal([][]byte{ledger.EncodeBatch(ledger.BatchHeader{Time: 1},
			[][]byte{bundle.Encode()})})
		if !block.Entry(0).Result.OK() {
			t.Fatal(block.Entry(0).Result)
		}
	}
	truth := &ledger.Batch{Carried: []ledger.Carried{c.next}}
	change(operator.Join(ledgertest.Member(10)))
	if draft := c.seal(c.vouched(truth, 3, 4)); draft != nil {
		t.Error("two of four are no majority")
	}
	if draft := c.seal(c.vouched(truth, 3, 4, 10)); draft == nil {
		t.Error("a new member does not count")
	}
	change(operator.Leave(1))
	change(operator.Leave(0))
	if draft := c.seal(c.vouched(truth, 3, 4, 5)); draft != nil {
		t.Error("members that left count")
	}
	if draft := c.seal(c.vouched(truth, 5, 10)); draft == nil {
		t.Error("the two members that are left do not count")
	}
}
