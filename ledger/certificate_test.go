package ledger_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// certifiedChain is a chain of three members: member 3 joins at block 2, member 0 leaves at block
// 4, and block 6 is the last.
type certifiedChain struct {
	genesis *ledger.Genesis
	blocks  []*ledger.Block // blocks[h] is block h
}

func newCertifiedChain() *certifiedChain {
	c := &certifiedChain{genesis: ledgertest.OperatedGenesis(3)}
	operator := ledgertest.NewOperator(c.genesis)
	client := ledgertest.NewClient(c.genesis, "acme")
	register := client.Bundle(client.Register("issuer", "a"))
	transfer := func() *ledger.Bundle {
		return client.Bundle(client.Transfer("acme:issuer", "acme:a", 1))
	}
	c.blocks = []*ledger.Block{c.genesis.Block()}
	for _, bundle := range []*ledger.Bundle{register, operator.Join(ledgertest.Member(3)),
		transfer(), operator.Leave(0), transfer(), transfer()} {
		c.blocks = append(c.blocks, ledgertest.After(c.blocks[len(c.blocks)-1], bundle))
	}
	return c
}

// certificate returns the certificate of a block, with the proof of the change if it made one.
func (c *certifiedChain) certificate(height ledger.Height, epoch ledger.MembersEpoch,
	members ...ledger.MemberIndex) *ledger.Certificate {
	block := c.blocks[height]
	certificate := ledgertest.Certificate(c.genesis, epoch, block, members...)
	if block.MembershipChange() != nil {
		certificate.Change = block.Proof(0)
	}
	return certificate
}

// headers returns the encoded headers after a block, up to another one.
func (c *certifiedChain) headers(after, to ledger.Height) (headers [][]byte) {
	for _, block := range c.blocks[after+1 : to+1] {
		headers = append(headers, block.Header.Encode())
	}
	return headers
}

// finality returns the proof that the block at a height is final, by the certificate of block 6.
func (c *certifiedChain) finality(height ledger.Height) *ledger.Finality {
	return &ledger.Finality{Changes: []*ledger.Certificate{c.certificate(2, 0, 0, 2),
		c.certificate(4, 1, 1, 2, 3)}, Headers: c.headers(height, 6),
		Certificate: c.certificate(6, 2, 1, 3)}
}

func TestFinalityFollowsTheMembers(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	for height := ledger.Height(1); height <= 6; height++ {
		decoded, err := ledger.DecodeFinality(c.finality(height).Encode())
		if err != nil {
			t.Fatal(err)
		}
		auditor := ledger.NewAuditor(c.genesis)
		if err := auditor.Verify(decoded, height, c.blocks[height].Hash); err != nil {
			t.Fatalf("block %d: %v", height, err)
		}
		// An auditor may stay, and verify a later block.
		if err := auditor.Verify(decoded, height, c.blocks[height].Hash); err != nil {
			t.Fatalf("block %d again: %v", height, err)
		}
		if auditor.Members().Epoch != 2 || auditor.Last().Height != 6 {
			t.Fatalf("the auditor is at epoch %d", auditor.Members().Epoch)
		}
	}
}

// lie is a wrong proof that block 3 of a certifiedChain is final.
type lie struct {
	name string
	tell func(*ledger.Finality)
}

// lies returns each lie that a node may tell a reader with the genesis alone. The explorer's
// tests tell its auditor the same ones (TestExplorerFixtures).
func (c *certifiedChain) lies() []lie {
	other := ledgertest.OperatedGenesis(3)
	other.Chain = "other"
	foreign := &certifiedChain{genesis: other, blocks: c.blocks}
	repeated := ledgertest.NewOperator(c.genesis).Join(ledgertest.Member(2))
	again := ledgertest.After(c.blocks[3], repeated)
	return []lie{
		{"too few sign", func(f *ledger.Finality) { f.Certificate = c.certificate(6, 2, 1) }},
		{"one member counts twice", func(f *ledger.Finality) {
			f.Certificate = c.certificate(6, 2, 1)
			f.Certificate.Seals = append(f.Certificate.Seals, f.Certificate.Seals[0])
		}},
		{"a member that left signs", func(f *ledger.Finality) {
			f.Certificate = c.certificate(6, 2, 0, 1)
		}},
		{"a stranger signs", func(f *ledger.Finality) {
			f.Certificate = c.certificate(6, 2, 1, 4)
		}},
		{"the quorum of the epoch before signs, for its epoch", func(f *ledger.Finality) {
			f.Certificate = c.certificate(6, 1, 0, 1, 2)
		}},
		{"the quorum of the genesis signs, no change is told", func(f *ledger.Finality) {
			f.Changes, f.Certificate = nil, c.certificate(6, 2, 0, 1)
		}},
		{"an epoch signs a block from before it", func(f *ledger.Finality) {
			f.Headers, f.Certificate = c.headers(3, 4), c.certificate(4, 2, 1, 2)
		}},
		{"a change is left out", func(f *ledger.Finality) { f.Changes = f.Changes[1:] }},
		{"the members of the new set certify their own join", func(f *ledger.Finality) {
			f.Changes[0] = c.certificate(2, 0, 0, 3)
		}},
		{"a join that repeats what is so gives a member a second vote", func(f *ledger.Finality) {
			f.Changes[1] = ledgertest.Certificate(c.genesis, 1, again, 0, 1, 2)
			f.Changes[1].Change = again.Proof(0)
			f.Certificate = c.certificate(6, 2, 1, 2)
			f.Certificate.Seals = append(f.Certificate.Seals, ledger.Seal{Member: 4,
				Signature: f.Certificate.Seals[1].Signature})
		}},
		{"another change than the block's", func(f *ledger.Finality) {
			f.Changes[0].Change = c.blocks[4].Proof(0)
		}},
		{"a change that does not prove itself", func(f *ledger.Finality) {
			f.Changes[0].Change = nil
		}},
		{"a transfer for a change", func(f *ledger.Finality) {
			f.Changes[0] = c.certificate(3, 0, 0, 1)
			f.Changes[0].Change = c.blocks[3].Proof(0)
		}},
		{"a change twice, the second time not signed", func(f *ledger.Finality) {
			forged := c.certificate(2, 0, 0, 2)
			forged.Hash, forged.Seals[0].Signature = ledger.Hash{3}, [64]byte{}
			f.Changes = slices.Insert(f.Changes, 1, forged)
		}},
		{"a change of a later epoch first", func(f *ledger.Finality) {
			f.Changes[0], f.Changes[1] = f.Changes[1], f.Changes[0]
		}},
		{"a signature is damaged", func(f *ledger.Finality) {
			f.Certificate.Seals[1].Signature[9] ^= 1
		}},
		{"a header is damaged", func(f *ledger.Finality) {
			f.Headers[0] = bytes.Clone(f.Headers[0])
			f.Headers[0][60] ^= 1
		}},
		{"a header is left out", func(f *ledger.Finality) { f.Headers = f.Headers[1:] }},
		{"signed for another chain", func(f *ledger.Finality) {
			f.Certificate = foreign.certificate(6, 2, 1, 3)
		}},
		{"the certificate of an earlier block", func(f *ledger.Finality) {
			f.Certificate = c.certificate(5, 2, 1, 3)
		}},
		{"the certificate of another block of that height", func(f *ledger.Finality) {
			other := ledgertest.After(c.blocks[5])
			f.Certificate = ledgertest.Certificate(c.genesis, 2, other, 1, 3)
		}},
	}
}

func TestWrongFinality(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	for _, lie := range append(c.lies(), []lie{
		{"too many headers", func(f *ledger.Finality) {
			for len(f.Headers) <= ledger.MaxFinalityHeaders {
				f.Headers = append(f.Headers, f.Headers...)
			}
		}},
		{"no certificate", func(f *ledger.Finality) { f.Certificate = nil }},
	}...) {
		f := c.finality(3)
		lie.tell(f)
		if err := ledger.NewAuditor(c.genesis).Verify(f, 3, c.blocks[3].Hash); !errors.Is(err,
			ledger.ErrCertificate) {
			t.Errorf("%s: %v", lie.name, err)
		}
	}
	if err := ledger.NewAuditor(c.genesis).Verify(c.finality(3), 3, ledger.Hash{1}); !errors.Is(err,
		ledger.ErrCertificate) {
		t.Errorf("another block than the proven one: %v", err)
	}
}

// TestRepeatedJoinIsNoChange has a member of two sign twice: for itself, and for the member that an
// operator's second, empty join of it seems to add.
func TestRepeatedJoinIsNoChange(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(2)
	operator := ledgertest.NewOperator(genesis)
	again := ledgertest.After(genesis.Block(), operator.Join(ledgertest.Member(1)))
	client := ledgertest.NewClient(genesis, "acme")
	lie := ledgertest.After(again, client.Bundle(client.Register("issuer", "a")))
	change := ledgertest.Certificate(genesis, 0, again, 0, 1)
	change.Change = again.Proof(0)
	if err := change.CheckChange(); err != nil {
		t.Fatalf("the repeated join did not succeed: %v", err)
	}
	own := ledger.SignStatement(ledgertest.Key("node-1"), genesis.Hash(), 1, 1, 2, lie.Hash)
	twin := own
	twin.Member = 2
	f := &ledger.Finality{Changes: []*ledger.Certificate{change},
		Certificate: ledger.Certify([]ledger.Statement{own, twin})}
	if err := ledger.NewAuditor(genesis).Verify(f, 2, lie.Hash); !errors.Is(err,
		ledger.ErrCertificate) {
		t.Fatalf("one of two members certified a block alone: %v", err)
	}
}

func TestCertifiedProof(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	proof := &ledger.CertifiedProof{Proof: c.blocks[3].Proof(0), Finality: c.finality(3)}
	decoded, err := ledger.DecodeCertifiedProof(proof.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.VerifyCertifiedProof(decoded, c.genesis); err != nil {
		t.Fatal(err)
	}
	decoded.Finality = c.finality(5)
	if err := ledger.VerifyCertifiedProof(decoded, c.genesis); !errors.Is(err,
		ledger.ErrCertificate) {
		t.Fatalf("the finality of another block: %v", err)
	}
	for name, spoil := range map[string]func(*ledger.Proof){
		"result": func(p *ledger.Proof) { p.Result.Code = ledger.InsufficientFunds },
		"body":   func(p *ledger.Proof) { p.Body = c.blocks[5].Unpacked[0].Body },
		"transaction": func(p *ledger.Proof) {
			p.Body, p.ID = c.blocks[5].Unpacked[0].Body, c.blocks[5].Entry(0).ID
		},
	} {
		forged := &ledger.CertifiedProof{Proof: c.blocks[3].Proof(0), Finality: c.finality(3)}
		spoil(forged.Proof)
		if err := ledger.VerifyCertifiedProof(forged, c.genesis); !errors.Is(err,
			ledger.ErrProof) {
			t.Errorf("another %s than the block's: %v", name, err)
		}
	}
	// A proof from before certificates is read, and proves nothing of its block.
	old, err := ledger.DecodeCertifiedProof(c.blocks[3].Proof(0).Encode())
	if err != nil || old.Finality != nil {
		t.Fatalf("%v, %v", old, err)
	}
	if err := ledger.VerifyCertifiedProof(old, c.genesis); !errors.Is(err, ledger.ErrCertificate) {
		t.Fatalf("no certificate: %v", err)
	}
}

// TestMembersOf compares the members that a node takes from its state with those that an auditor
// takes from certificates.
func TestMembersOf(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	first := c.genesis.Membership()
	four := ledger.Membership{Number: 2, Members: append(slices.Clone(first.Members),
		ledger.GroupMember{Index: 3, Member: ledgertest.Member(3), Joined: 2})}
	three := ledger.Membership{Number: 3, Members: four.Members[1:]}
	former := []ledger.FormerMember{{GroupMember: first.Members[0], Left: 4}}
	auditor := ledger.NewAuditor(c.genesis)
	for _, each := range []struct {
		height ledger.Height
		before ledger.Membership
	}{{1, first}, {2, first}, {3, four}, {4, four}, {5, three}, {6, three}} {
		got := ledger.MembersOf(c.genesis.Hash(), each.height, &each.before, former)
		want := auditor.Members()
		if got.Epoch != want.Epoch || got.Since != want.Since || len(got.Keys) != len(want.Keys) {
			t.Fatalf("block %d: epoch %d since %d, want %d since %d", each.height, got.Epoch,
				got.Since, want.Epoch, want.Since)
		}
		for index, key := range want.Keys {
			if !bytes.Equal(got.Keys[index], key) {
				t.Fatalf("block %d: another key of member %d", each.height, index)
			}
		}
		if c.blocks[each.height].MembershipChange() != nil {
			if err := auditor.Follow(c.certificate(each.height, want.Epoch,
				1, 2, 3)); each.height > 2 &&
				err != nil {
				t.Fatal(err)
			} else if each.height == 2 {
				if err := auditor.Follow(c.certificate(2, 0, 0, 1)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// The members that certificates tell of are those of the chain, each at its own index. Auditors
// that went the same way so far share nothing that changes.
func TestAuditorKnowsTheMembership(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	operator := ledgertest.NewOperator(genesis)
	head, auditor := genesis.Block(), ledger.NewAuditor(genesis)
	follow := func(change *ledger.Bundle, signers ...int) {
		head = ledgertest.After(head, change)
		var statements []ledger.Statement
		for _, i := range signers {
			statements = append(statements, ledger.SignStatement(
				ledgertest.Key(ledgertest.Member(i).Name), genesis.Hash(), ledger.MemberIndex(i),
				auditor.Members().Epoch, head.Header.Height, head.Hash))
		}
		certificate := ledger.Certify(statements)
		certificate.Change = head.Proof(0)
		if err := auditor.Follow(certificate); err != nil {
			t.Fatal(err)
		}
	}
	follow(operator.Join(ledgertest.Member(3)), 0, 1)
	earlier := *auditor
	follow(operator.Leave(1), 0, 1, 3)
	follow(operator.Join(ledgertest.Member(4)), 2, 3)
	first := genesis.Membership().Members
	third := ledger.GroupMember{Index: 3, Member: ledgertest.Member(3), Joined: 1}
	fourth := ledger.GroupMember{Index: 4, Member: ledgertest.Member(4), Joined: 3}
	for _, each := range []struct {
		auditor *ledger.Auditor
		number  uint64
		members []ledger.GroupMember
	}{{&earlier, 1, append(slices.Clone(first), third)},
		{auditor, 3, []ledger.GroupMember{first[0], first[2], third, fourth}}} {
		got := each.auditor.Membership()
		if got.Number != each.number || got.Height != ledger.Height(each.number) ||
			!reflect.DeepEqual(got.Members, each.members) {
			t.Errorf("after change %d: %+v", each.number, got)
		}
		for _, member := range each.members {
			if !bytes.Equal(each.auditor.Members().Keys[member.Index], member.Key) ||
				len(each.auditor.Members().Keys) != len(each.members) {
				t.Errorf("after change %d: another key of member %d", each.number, member.Index)
			}
		}
	}
}

// TestNoChange has what no auditor must take for the join in block 2.
func TestNoChange(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	operator := ledgertest.NewOperator(c.genesis)
	operator.Stream = 9
	block := func(bundle *ledger.Bundle) *ledger.Block {
		return ledgertest.After(c.blocks[1], bundle)
	}
	twin, nobody := block(operator.Join(ledgertest.Member(3))), block(operator.Leave(7))
	failed := block(operator.Join(ledgertest.Member(3)))
	failed.Unpacked[0].Result = ledger.Result{Code: ledger.Unauthorised, Item: ledger.NoItem}
	failed.Complete(failed.Header.StateDigest)
	admitted := block(ledgertest.Admit("operator", c.genesis, c.genesis.Membership(), 0,
		ledgertest.Disk(1), 1))
	higher := *c.blocks[2]
	higher.Header.Height++
	for name, lie := range map[string][2]*ledger.Block{
		"a block at another height":        {&higher, c.blocks[2]},
		"the same change of another block": {c.blocks[2], twin},
		"a change that failed":             {failed, failed},
		"an admission of a disk":           {admitted, admitted},
		"a member leaves that was none":    {nobody, nobody},
	} {
		certificate := ledgertest.Certificate(c.genesis, 0, lie[0], 0, 1)
		certificate.Change = lie[1].Proof(0)
		if err := ledger.NewAuditor(c.genesis).Follow(certificate); !errors.Is(err,
			ledger.ErrCertificate) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The block and its certificate are genuine, and the proof is of another member.
	other := block(operator.Join(ledgertest.Member(4))).Unpacked[0]
	for name, forge := range map[string]func(*ledger.Proof){
		"body":        func(p *ledger.Proof) { p.Body = other.Body },
		"transaction": func(p *ledger.Proof) { p.Body, p.ID = other.Body, other.ID },
	} {
		certificate := c.certificate(2, 0, 0, 1)
		forge(certificate.Change)
		auditor := ledger.NewAuditor(c.genesis)
		if err := auditor.Follow(certificate); !errors.Is(err, ledger.ErrCertificate) ||
			auditor.Members().Epoch != 0 {
			t.Errorf("the %s of another join: %v", name, err)
		}
		if err := certificate.CheckChange(); !errors.Is(err, ledger.ErrCertificate) {
			t.Errorf("the %s of another join proves itself: %v", name, err)
		}
	}
}

// TestSealsAreInOrder decodes a certificate that one member signed twice.
func TestSealsAreInOrder(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain().certificate(1, 0, 0, 1)
	for _, seals := range [][]ledger.Seal{{c.Seals[0], c.Seals[0]}, {c.Seals[1], c.Seals[0]}, {}} {
		wrong := *c
		wrong.Seals = seals
		if _, err := ledger.DecodeCertificate(wrong.Encode()); !errors.Is(err,
			ledger.ErrMalformed) {
			t.Errorf("%d signatures: %v", len(seals), err)
		}
	}
}

func TestStatement(t *testing.T) {
	t.Parallel()
	chain, key := ledger.Hash{7}, ledgertest.PublicKey("node-1")
	statement := ledger.SignStatement(ledgertest.Key("node-1"), chain, 1, 2, 30, ledger.Hash{9})
	decoded, err := ledger.DecodeStatement(statement.Encode())
	if err != nil || decoded != statement {
		t.Fatalf("%v, %v", decoded, err)
	}
	if err := decoded.Verify(chain, key[:]); err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(*ledger.Statement){
		"height": func(s *ledger.Statement) { s.Height++ },
		"hash":   func(s *ledger.Statement) { s.Hash[0]++ },
		"epoch":  func(s *ledger.Statement) { s.Epoch++ },
	} {
		wrong := statement
		lie(&wrong)
		if err := wrong.Verify(chain, key[:]); !errors.Is(err, ledger.ErrCertificate) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if err := statement.Verify(ledger.Hash{8}, key[:]); !errors.Is(err, ledger.ErrCertificate) {
		t.Errorf("another chain: %v", err)
	}
	if err := statement.Verify(chain, nil); !errors.Is(err, ledger.ErrCertificate) {
		t.Errorf("no member: %v", err)
	}
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	keyOf := func(index ledger.MemberIndex) []byte { return ledgertest.Member(int(index)).Key }
	fork := ledgertest.After(c.blocks[4])
	mine, other := c.certificate(5, 2, 1, 2, 3), ledgertest.Certificate(c.genesis, 2, fork, 3)
	evidence := ledger.Contradiction(mine, other)
	if evidence == nil || !slices.Equal(evidence.Members(), []ledger.MemberIndex{3}) {
		t.Fatalf("%+v", evidence)
	}
	if err := evidence.Verify(c.genesis.Hash(), keyOf); err != nil {
		t.Fatal(err)
	}
	decoded, err := ledger.DecodeEvidence(evidence.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if err := decoded.Verify(c.genesis.Hash(), keyOf); err != nil {
		t.Fatal(err)
	}
	if swapped := ledger.Contradiction(other, mine); swapped.ID() != evidence.ID() ||
		decoded.ID() != evidence.ID() {
		t.Fatal("one contradiction has two identities")
	}
	if ledger.Contradiction(mine, c.certificate(6, 2, 1)) != nil ||
		ledger.Contradiction(mine, c.certificate(5, 1, 1)) != nil {
		t.Fatal("blocks that can both be true are evidence")
	}
	for _, side := range []*ledger.Certificate{decoded.First, decoded.Second} {
		side.Seals[0].Signature[3] ^= 1
		if err := decoded.Verify(c.genesis.Hash(), keyOf); !errors.Is(err, ledger.ErrEvidence) {
			t.Fatalf("a forged signature is evidence: %v", err)
		}
		side.Seals[0].Signature[3] ^= 1
	}
	same := &ledger.Evidence{First: mine, Second: mine}
	if err := same.Verify(c.genesis.Hash(), keyOf); !errors.Is(err, ledger.ErrEvidence) {
		t.Fatalf("the same block twice is evidence: %v", err)
	}
}

func FuzzStatement(f *testing.F) {
	statement := ledger.SignStatement(ledgertest.Key("node-1"), ledger.Hash{7}, 1, 2, 30,
		ledger.Hash{9})
	f.Add(statement.Encode())
	key := ledgertest.PublicKey("node-1")
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeStatement(data)
		if err != nil {
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a statement has two encodings")
		}
		_ = decoded.Verify(ledger.Hash{7}, key[:])
	})
}

func FuzzCertifiedProof(f *testing.F) {
	c := newCertifiedChain()
	f.Add((&ledger.CertifiedProof{Proof: c.blocks[3].Proof(0), Finality: c.finality(3)}).Encode())
	f.Add(c.blocks[3].Proof(0).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeCertifiedProof(data)
		if err != nil {
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a proof has two encodings")
		}
		_ = ledger.VerifyCertifiedProof(decoded, c.genesis)
	})
}

func FuzzCertificate(f *testing.F) {
	c := newCertifiedChain()
	f.Add(c.certificate(2, 0, 0, 1, 2).Encode())
	f.Add(c.certificate(6, 2, 1).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeCertificate(data)
		if err != nil {
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a certificate has two encodings")
		}
		auditor := ledger.NewAuditor(c.genesis)
		_ = auditor.Follow(decoded)
		_ = auditor.Check(decoded)
	})
}

func FuzzEvidence(f *testing.F) {
	c := newCertifiedChain()
	f.Add(ledger.Contradiction(c.certificate(5, 2, 1, 2),
		ledgertest.Certificate(c.genesis, 2, ledgertest.After(c.blocks[4]), 3)).Encode())
	keyOf := func(index ledger.MemberIndex) []byte { return ledgertest.Member(int(index) % 9).Key }
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeEvidence(data)
		if err != nil {
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("evidence has two encodings")
		}
		_ = decoded.Verify(c.genesis.Hash(), keyOf)
	})
}
