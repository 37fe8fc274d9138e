package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// changingChain applies blocks to a store of three members: transfers, a join of member 3 in block
// 2, and a leave of member 0 in block 5.
func changingChain(t *testing.T, s *Store) {
	t.Helper()
	client, operator := ledgertest.NewClient(s.genesis, "acme"), ledgertest.NewOperator(s.genesis)
	transfer := func() *ledger.Bundle {
		return client.Bundle(client.Transfer("acme:issuer", "acme:a", 1))
	}
	for i, bundle := range []*ledger.Bundle{client.Bundle(client.Register("issuer", "a")),
		operator.Join(ledgertest.Member(3)), transfer(), transfer(), operator.Leave(0), transfer(),
		transfer()} {
		block, err := s.Apply(1, ledger.Round(1+3*i), [][]byte{ledgertest.Batch(1, bundle)})
		if err != nil || !block.Entry(0).Result.OK() {
			t.Fatalf("block %d: %v, %v", i+1, err, block)
		}
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
}

// certify makes a certificate of a block of the store.
func certify(t *testing.T, s *Store, height ledger.Height, epoch ledger.MembersEpoch,
	members ...ledger.MemberIndex) *ledger.Certificate {
	t.Helper()
	block, err := s.Block(height)
	if err != nil {
		t.Fatal(err)
	}
	return ledgertest.Certificate(s.genesis, epoch, block, members...)
}

// openThree opens a store of a chain with three members.
func openThree(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, ledgertest.OperatedGenesis(3), small())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestCertificatesAreKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := openThree(t, dir)
	changingChain(t, s)
	if got := s.ChangeHeights(); !slices.Equal(got, []ledger.Height{2, 5}) {
		t.Fatalf("changes at %v", got)
	}
	if _, err := s.Finality(1); !errors.Is(err, ErrUncertified) {
		t.Fatalf("without certificates: %v", err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- s.AwaitCertificate(bounded, 6) }()
	for _, c := range []*ledger.Certificate{certify(t, s, 2, 0, 0, 1), certify(t, s, 7, 2, 1, 2),
		certify(t, s, 4, 1, 0, 2, 3)} {
		if err := s.PutCertificate(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	// Block 7 is certified, but the leave in block 5 is not.
	if _, err := s.Finality(6); !errors.Is(err, ErrUncertified) {
		t.Fatalf("without the certificate of a change: %v", err)
	}
	if err := s.PutCertificate(certify(t, s, 5, 1, 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store) {
		t.Helper()
		if at := s.CertifiedHeight(); at != 7 {
			t.Errorf("certified up to %d", at)
		}
		for height := ledger.Height(1); height <= 7; height++ {
			finality, err := s.Finality(height)
			if err != nil {
				t.Fatalf("block %d: %v", height, err)
			}
			_, hash, err := s.Header(height)
			if err != nil {
				t.Fatal(err)
			}
			if err := ledger.NewAuditor(s.genesis).Verify(finality, height, hash); err != nil {
				t.Errorf("block %d: %v", height, err)
			}
		}
	}
	check(s)
	if few, err := s.Certificates(2, 1); err != nil || len(few) != 1 || few[0].Height != 4 {
		t.Errorf("a small piece: %v, %v", few, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := Verify(t.Context(), dir, s.genesis, small(), nil)
	if err != nil || found.Certificates != 4 || found.Certified != 7 {
		t.Fatalf("%+v, %v", found, err)
	}
	s = openThree(t, dir)
	check(s)

	// A snapshot carries what proves its block, and a store made of it passes that on.
	var snapshot bytes.Buffer
	if _, err := s.WriteSnapshot(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	trusted := false
	if _, err := Restore(t.Context(), restored, s.genesis, small(),
		bytes.NewReader(snapshot.Bytes()), func(_ ledger.Height, _ ledger.Hash,
			certified bool) error {
			trusted = certified
			return nil
		}); err != nil || !trusted {
		t.Fatalf("certified %v, %v", trusted, err)
	}
	again := openThree(t, restored)
	finality, err := again.Finality(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.NewAuditor(s.genesis).Verify(finality, 7, again.Head().Hash); err != nil {
		t.Fatal(err)
	}

	// One byte of a signature is enough to refuse the snapshot.
	forged := bytes.Clone(snapshot.Bytes())
	signature := finality.Certificate.Seals[0].Signature
	forged[bytes.Index(forged, signature[:])+40] ^= 1
	if _, err := Restore(t.Context(), filepath.Join(t.TempDir(), "forged"), s.genesis, small(),
		bytes.NewReader(forged), believe); !errors.Is(err, ErrSnapshot) {
		t.Fatalf("a forged certificate: %v", err)
	}
}

// TestWrongCertificates shows that a store keeps no certificate that it has not checked, from any
// source.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	s := openThree(t, filepath.Join(t.TempDir(), "data"))
	changingChain(t, s)
	fork := ledgertest.After(s.genesis.Block())
	for _, c := range []struct {
		name        string
		certificate *ledger.Certificate
		want        error
	}{
		{"too few", certify(t, s, 6, 2, 1), ledger.ErrCertificate},
		{"the quorum of the epoch before", certify(t, s, 6, 1, 0, 1, 2), ledger.ErrCertificate},
		{"a quorum of the epoch before in the new epoch", certify(t, s, 6, 2, 0, 1),
			ledger.ErrCertificate},
		{"the new members certify what made them members", certify(t, s, 2, 1, 0, 1, 3),
			ledger.ErrCertificate},
		{"another block", ledgertest.Certificate(s.genesis, 0, fork, 0, 1, 2), ErrMismatch},
		{"a block above the head", &ledger.Certificate{Height: 8, Epoch: 2}, ErrNotFound},
	} {
		if err := s.PutCertificate(c.certificate); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	wrong := certify(t, s, 5, 1, 1, 2, 3)
	join, err := s.Block(2)
	if err != nil {
		t.Fatal(err)
	}
	wrong.Change = join.Proof(0)
	if err := s.PutCertificate(wrong); !errors.Is(err, ledger.ErrCertificate) {
		t.Errorf("the proof of another change: %v", err)
	}
	unproved := certify(t, s, 2, 0, 0, 1)
	unproved.Change = join.Proof(0)
	unproved.Change.ResultPath = append(unproved.Change.ResultPath, ledger.Hash{1})
	if err := s.PutCertificate(unproved); !errors.Is(err, ledger.ErrCertificate) {
		t.Errorf("a proof that does not hold: %v", err)
	}
	if s.CertifiedHeight() != 0 {
		t.Errorf("certified up to %d", s.CertifiedHeight())
	}
}

// TestVerifyFindsWrongCertificates puts rows into the database past all checks.
func TestVerifyFindsWrongCertificates(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(s *Store) (key, value []byte){
		"a certificate of too few": func(s *Store) (key, value []byte) {
			return heightKey(rowCertificate, 6), certify(t, s, 6, 2, 1).Encode()
		},
		"evidence that proves nothing": func(s *Store) (key, value []byte) {
			e := &ledger.Evidence{First: certify(t, s, 6, 2, 1), Second: certify(t, s, 6, 2, 3)}
			return append([]byte{rowEvidence}, make([]byte, ledger.HashSize)...), e.Encode()
		},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		s := openThree(t, dir)
		changingChain(t, s)
		key, value := wrong(s)
		if err := errors.Join(s.putRow(key, value), s.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), dir, s.genesis, small(), nil); !errors.Is(err,
			ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEvidenceIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := openThree(t, dir)
	changingChain(t, s)
	evidence := func(i int) *ledger.Evidence {
		fork := ledgertest.After(s.genesis.Block())
		fork.Header.Time += ledger.Milliseconds(i)
		fork.Complete(ledger.Hash{})
		return ledger.Contradiction(certify(t, s, 1, 0, 0, 1),
			ledgertest.Certificate(s.genesis, 0, fork, 0))
	}
	for i, want := range []bool{true, false} {
		if added, err := s.PutEvidence(evidence(1)); err != nil || added != want {
			t.Fatalf("time %d: added %v, %v", i, added, err)
		}
	}
	forged := evidence(2)
	forged.Second.Seals[0].Signature[0] ^= 1
	if added, err := s.PutEvidence(forged); added || !errors.Is(err, ledger.ErrEvidence) {
		t.Fatalf("forged: %v, %v", added, err)
	}
	for i := range 2 * EvidenceOfMember {
		if _, err := s.PutEvidence(evidence(i + 2)); err != nil {
			t.Fatal(err)
		}
	}
	// The many pieces against member 0 do not hide one against member 2.
	fork := ledgertest.After(s.genesis.Block())
	fork.Header.Time++
	fork.Complete(ledger.Hash{})
	if added, err := s.PutEvidence(ledger.Contradiction(certify(t, s, 1, 0, 0, 1),
		ledgertest.Certificate(s.genesis, 0, fork, 2))); err != nil || !added {
		t.Fatalf("against another member: %v, %v", added, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openThree(t, dir)
	if count := s.EvidenceCount(); count != EvidenceOfMember+1 {
		t.Errorf("%d pieces are counted", count)
	}
	kept, err := s.Evidence()
	if err != nil || len(kept) != EvidenceOfMember+1 || kept[0].Height() != 1 {
		t.Fatalf("%d pieces, %v", len(kept), err)
	}
}

// TestChangeBesideARepeatedJoin has one block remove a member and repeat the join of another one.
func TestChangeBesideARepeatedJoin(t *testing.T) {
	t.Parallel()
	s := openThree(t, filepath.Join(t.TempDir(), "data"))
	operator := ledgertest.NewOperator(s.genesis)
	leave, repeated := operator.Leave(0), operator.Join(ledgertest.Member(1))
	block, err := s.Apply(1, 1, [][]byte{ledgertest.Batch(1, leave, repeated)})
	if err != nil || !block.Entry(0).Result.OK() || !block.Entry(1).Result.OK() {
		t.Fatalf("%v, %v", err, block)
	}
	client := ledgertest.NewClient(s.genesis, "acme")
	if _, err := s.Apply(1, 5, [][]byte{ledgertest.Batch(1,
		client.Bundle(client.Register("issuer", "a")))}); err != nil {
		t.Fatal(err)
	}
	for i := range block.Len() {
		wrong := certify(t, s, 1, 0, 1, 2)
		if wrong.Change = block.Proof(i); block.Unpacked[i].Transaction().Change.Kind ==
			ledger.ChangeJoin {
			if err := s.PutCertificate(wrong); !errors.Is(err, ledger.ErrCertificate) {
				t.Fatalf("the repeated join passes for the change: %v", err)
			}
		}
	}
	last := certify(t, s, 2, 1, 1, 2)
	last.Change = block.Proof(0) // a peer may add it
	for _, c := range []*ledger.Certificate{certify(t, s, 1, 0, 1, 2), last} {
		if err := s.PutCertificate(c); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := s.Certificate(2); err != nil || kept.Change != nil {
		t.Fatalf("a change is kept with a block that made none: %+v, %v", kept, err)
	}
	finality, err := s.Finality(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.NewAuditor(s.genesis).Verify(finality, 2, s.Head().Hash); err != nil {
		t.Fatal(err)
	}
}

// TestCertificateOfALostBlock has a crash lose a block whose certificate it kept, and another block
// take its place.
func TestCertificateOfALostBlock(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := openThree(t, dir)
	changingChain(t, s)
	lost := ledgertest.Certificate(s.genesis, 2, ledgertest.After(s.genesis.Block()), 1, 2)
	lost.Height = 8
	if err := errors.Join(s.putRow(heightKey(rowCertificate, 8), lost.Encode()),
		s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openThree(t, dir)
	operator := ledgertest.NewOperator(s.genesis)
	operator.Stream = 7
	if _, err := s.Apply(1, 100, [][]byte{ledgertest.Batch(1,
		operator.Leave(1))}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Certificate(8); !errors.Is(err, ErrUncertified) {
		t.Fatalf("the certificate of a lost block: %v", err)
	}
	if err := s.PutCertificate(certify(t, s, 8, 2, 1, 3)); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Certificate(8); err != nil || c.Hash != s.Head().Hash {
		t.Fatalf("%v, %v", c, err)
	}
}

// TestStoreThatReplacesAnother has what the replaced one knew, up to the blocks that it shares.
func TestStoreThatReplacesAnother(t *testing.T) {
	t.Parallel()
	s := openThree(t, filepath.Join(t.TempDir(), "data"))
	changingChain(t, s)
	for _, c := range []*ledger.Certificate{certify(t, s, 2, 0, 0, 1), certify(t, s, 5, 1, 1, 2, 3),
		certify(t, s, 7, 2, 1, 2)} {
		if err := s.PutCertificate(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutEvidence(ledger.Contradiction(certify(t, s, 1, 0, 1),
		ledgertest.Certificate(s.genesis, 0, ledgertest.After(s.genesis.Block()), 1))); err != nil {
		t.Fatal(err)
	}
	fresh := openThree(t, filepath.Join(t.TempDir(), "fresh"))
	for height := ledger.Height(1); height <= 6; height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh.Append(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := fresh.AdoptCertificates(s); err != nil {
		t.Fatal(err)
	}
	if at, pieces := fresh.CertifiedHeight(), fresh.EvidenceCount(); at != 5 || pieces != 1 {
		t.Fatalf("certified up to %d, %d pieces of evidence", at, pieces)
	}
}

// TestCloseDuringASnapshot does not wait for a certificate that does not come.
func TestCloseDuringASnapshot(t *testing.T) {
	t.Parallel()
	s := openThree(t, filepath.Join(t.TempDir(), "data"))
	changingChain(t, s)
	if err := s.PutCertificate(certify(t, s, 2, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.WriteSnapshot(t.Context(), io.Discard)
		ended <- err
	}()
	time.Sleep(certificateWait / 10)
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > certificateWait/2 {
		t.Errorf("Close took %v", took)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the snapshot: %v", err)
	}
}

// TestMembersAreWhatAnAuditorFollows compares the members of each block in the store with those
// that follow from certificates, while members join and leave, and one does both.
func TestMembersAreWhatAnAuditorFollows(t *testing.T) {
	t.Parallel()
	s := openThree(t, filepath.Join(t.TempDir(), "data"))
	operator := ledgertest.NewOperator(s.genesis)
	admit := func() *ledger.Bundle {
		return ledgertest.Admit("operator", s.genesis, s.Membership(), 1, ledgertest.Disk(1),
			s.AppendedHeight())
	}
	for i, next := range []func() *ledger.Bundle{
		func() *ledger.Bundle { return operator.Join(ledgertest.Member(3)) }, admit,
		func() *ledger.Bundle { return operator.Join(ledgertest.Member(1)) },
		func() *ledger.Bundle { return operator.Join(ledgertest.Member(4)) },
		func() *ledger.Bundle { return operator.Leave(3) },
		func() *ledger.Bundle { return operator.Leave(0) },
		func() *ledger.Bundle { return operator.Join(ledgertest.Member(5)) },
		func() *ledger.Bundle { return operator.Join(ledgertest.Member(5)) },
	} {
		block, err := s.Apply(1, ledger.Round(1+3*i), [][]byte{ledgertest.Batch(1, next())})
		if err != nil || !block.Entry(0).Result.OK() {
			t.Fatalf("block %d: %v, %v", i+1, err, block)
		}
	}
	auditor, changes := ledger.NewAuditor(s.genesis), s.ChangeHeights()
	if !slices.Equal(changes, []ledger.Height{1, 4, 5, 6, 7}) {
		t.Fatalf("changes at %v", changes)
	}
	for height := ledger.Height(1); height <= s.AppendedHeight()+1; height++ {
		got, want := s.MembersAt(height), auditor.Members()
		if got.Epoch != want.Epoch || got.Since != want.Since || len(got.Keys) != len(want.Keys) {
			t.Fatalf("block %d: %+v, want %+v", height, got, want)
		}
		var signers []ledger.MemberIndex
		for index, key := range want.Keys {
			if !bytes.Equal(got.Keys[index], key) {
				t.Fatalf("block %d: another key of member %d", height, index)
			}
			signers = append(signers, index)
		}
		told, whole := auditor.Membership(), s.state.MembershipAt(height-1)
		if told.Number != uint64(want.Epoch) || told.Height != want.Since || told.Height > 0 &&
			told.Round != ledger.Round(3*told.Height-2) {
			t.Fatalf("block %d: %+v", height, told)
		}
		for i := range whole.Members {
			whole.Members[i].Disk = ledger.DiskID{}
		}
		if !reflect.DeepEqual(told.Members, whole.Members) {
			t.Fatalf("block %d: %+v, want %+v", height, told.Members, whole.Members)
		}
		if !slices.Contains(changes, height) {
			continue
		}
		c := certify(t, s, height, got.Epoch, signers...)
		if err := s.PutCertificate(c); err != nil {
			t.Fatal(err)
		}
		if err := auditor.Follow(c); err != nil {
			t.Fatal(err)
		}
	}
}

// A trail goes up to the first change without a certificate, and comes in bounded pieces.
func TestTrail(t *testing.T) {
	t.Parallel()
	s := openThree(t, filepath.Join(t.TempDir(), "data"))
	changingChain(t, s)
	heights := func(from ledger.MembersEpoch, bytesMax int) (heights []ledger.Height) {
		t.Helper()
		trail, err := s.Trail(from, bytesMax)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range trail {
			if c.Change == nil || c.Epoch != from+ledger.MembersEpoch(i) {
				t.Errorf("certificate %d: %+v", i, c)
			}
			heights = append(heights, c.Height)
		}
		return heights
	}
	for _, step := range []struct {
		certificate *ledger.Certificate // put first
		from        ledger.MembersEpoch
		bytesMax    int
		want        []ledger.Height
	}{
		{nil, 0, 1 << 20, nil},
		{certify(t, s, 5, 1, 1, 2, 3), 0, 1 << 20, nil},
		{nil, 1, 1 << 20, []ledger.Height{5}},
		{certify(t, s, 2, 0, 0, 1), 0, 1 << 20, []ledger.Height{2, 5}},
		{nil, 0, 1, []ledger.Height{2}},
		{nil, 1, 1, []ledger.Height{5}},
		{nil, 2, 1, nil},
		{nil, 1 << 63, 1, nil},
	} {
		if step.certificate != nil {
			if err := s.PutCertificate(step.certificate); err != nil {
				t.Fatal(err)
			}
		}
		if got := heights(step.from, step.bytesMax); !slices.Equal(got, step.want) {
			t.Errorf("%+v: %v", step, got)
		}
	}
}
