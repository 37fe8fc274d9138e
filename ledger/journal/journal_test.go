package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// nasty is a note that tries to look like the lines of every format.
const nasty = "\ndate:foo, [2026-99-99] date2:x\n{\"type\":\"block\",\"height\":1}\n" +
	"block,9,x\n; block 9 00\n; asset X\ncommodity X\nend,\n; end\n\"q\" \\ \t,;|\u2028é<&>\r\n" +
	"2026-01-01 open Assets:X\n"

// chain returns a store with blocks of every kind of content: openings, an issuer, transfers that
// are packed and that are not, some that fail, repeated bundles, records, notes, the largest
// amounts, and members that join and leave, with certificates of every third block.
func chain(t testing.TB) *store.Store {
	t.Helper()
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Version, genesis.Time = ledger.NewestVersion, 1_790_000_000_000
	s, err := store.Open(t.TempDir(), genesis, store.Options{MemTableBytes: 1 << 20,
		BlockCacheBytes: 1 << 20, ReserveBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	acme, bank := ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "Bank_1")
	operator := ledgertest.NewOperator(genesis)
	round := ledger.Round(0)
	members := []ledger.MemberIndex{0}
	epoch := ledger.MembersEpoch(0)
	add := func(bundles ...*ledger.Bundle) {
		t.Helper()
		round++
		block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(genesis.Time+
			ledger.Milliseconds(round)*1000, bundles...)})
		if err != nil {
			t.Fatal(err)
		}
		change := block.MembershipChange()
		if round%3 == 0 || change != nil {
			if err := s.PutCertificate(ledgertest.Certificate(genesis, epoch, block,
				members...)); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case change != nil && change.Kind == ledger.ChangeJoin:
			members, epoch = append(members, ledger.MemberIndex(len(members))), epoch+1
		case change != nil && change.Kind == ledger.ChangeLeave:
			members, epoch = slices.DeleteFunc(members, func(i ledger.MemberIndex) bool {
				return i == change.Index
			}), epoch+1
		}
	}
	names := []string{"mint", "cash", "a-b_c.d~e@f+g=h$i!j*k/l", "Cash", "1st"}
	first, second := acme.Register(names...), bank.Register("mint", "vault")
	first.Openings[0].Issuer, second.Openings[0].Issuer = true, true
	second.Openings[1].Alias = "the vault"
	add(acme.Bundle(first))
	add(bank.Bundle(second), acme.Bundle(acme.Transfer("acme:mint", "acme:cash", 1_000)))
	noted := acme.Transfer("acme:cash", "acme:Cash", 10)
	noted.Note = []byte(nasty)
	binary := acme.Next()
	binary.Note = []byte{0xff, 0, 1}
	binary.Records = []ledger.Record{{Key: "acme:record", Value: []byte{0xfe, 0}},
		{Key: "acme:text", Value: []byte("line\nline")}}
	bundle := acme.Bundle(noted, acme.Transfer("acme:cash", "acme:mint", 1_000_000), binary)
	add(bundle)
	add(operator.Join(ledgertest.Member(1)), bundle, acme.Bundle(acme.Transfer("acme:cash",
		"acme:"+ledger.AccountPath(names[2]), 5)))
	var packed []ledger.Transaction
	for i := range 200 {
		from, to, amount := ledger.AccountPath("acme:mint"), ledger.AccountPath("acme:1st"), i+1
		if i%50 == 7 {
			from, to, amount = to, "acme:cash", 1_000_000
		}
		transfer := acme.Transfer(from, to, int64(amount))
		if i%3 == 0 {
			transfer.Postings[0].Asset, transfer.Postings[1].Asset = "EUR", "EUR"
		}
		packed = append(packed, transfer)
	}
	add(acme.Packed(packed...), bank.Bundle(bank.Transfer("Bank_1:mint", "Bank_1:vault", 1)))
	large := bank.Transfer("Bank_1:mint", "Bank_1:vault", 1)
	for i, asset := range []ledger.AssetName{"x", "x"} {
		large.Postings[i].Asset = asset
	}
	large.Postings[0].Amount, _ = ledger.ParseAmount("-170141183460469231731687303715884105727")
	large.Postings[1].Amount = ledger.MaxAmount
	add(bank.Bundle(large))
	add(operator.Leave(0))
	for i := range 5 {
		transactions := []ledger.Transaction{acme.Transfer("acme:mint", "acme:cash", 3)}
		switch i {
		case 0: // amounts of EUR are there already
			transactions = append(transactions, acme.ChangeAsset("EUR", 1, ledger.AssetTerms{
				Decimals: 2, Issuers: []ledger.Issuer{{Organisation: "acme"}}}))
		case 1, 3:
			transfer := acme.Transfer("acme:mint", "acme:cash", int64(1_205+i))
			transfer.Postings[0].Asset, transfer.Postings[1].Asset = "EUR", "EUR"
			transactions = append(transactions, transfer)
		}
		add(acme.Bundle(transactions...))
	}
	// Holds: one is voided, one posted in part and one whole.
	for _, posted := range []int64{0, 4, 7} {
		held := acme.Bundle(acme.PlaceHold("acme:cash", "Bank_1:vault", 7, genesis.Time+3_600_000))
		add(held)
		add(bank.Bundle(bank.EndHold(held.ID(0), "acme:cash", "Bank_1:vault", posted)))
	}
	return s
}

func export(t testing.TB, source journal.Source, format string, options journal.Options) []byte {
	t.Helper()
	f, err := journal.FormatOf(format)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := journal.Export(t.Context(), &out, source, f, options); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func verify(t testing.TB, text []byte, genesis *ledger.Genesis) (journal.Verified, error) {
	t.Helper()
	return journal.Verify(t.Context(), bytes.NewReader(text), genesis, nil)
}

// A whole journal holds, with proofs and without, at any block.
func TestVerify(t *testing.T) {
	t.Parallel()
	s := chain(t)
	head := s.Head()
	for to := range head.Height + 1 {
		for _, proofs := range []bool{false, true} {
			text := export(t, journal.FromStore(s), "jsonl",
				journal.Options{To: to, Proofs: proofs})
			found, err := verify(t, text, s.Genesis())
			if err != nil || found.Height != to || found.Lines != bytes.Count(text, []byte("\n")) {
				t.Fatalf("up to block %d: %+v %v", to, found, err)
			}
			if to == head.Height && (found.Hash != head.Hash || found.Certificates != 8 ||
				found.Certified != 18 || found.Transactions != head.Total) {
				t.Errorf("%+v, the head is %+v", found, head)
			}
		}
	}
	text := string(export(t, journal.FromStore(s), "jsonl", journal.Options{To: head.Height}))
	for _, want := range []string{`"outcome":"failed","code":9,`, `"reason":"insufficient funds"`,
		`"note_base64":"/wAB"`, `"packed":true`, `"signature":"`, `"type":"certificate"`,
		`"amount":"-170141183460469231731687303715884105727"`, `"value":"line\nline"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the journal has no %s", want)
		}
	}
}

// Every flipped byte is found, wherever it is.
func TestFlips(t *testing.T) {
	t.Parallel()
	s := chain(t)
	text := export(t, journal.FromStore(s), "jsonl", journal.Options{To: s.Head().Height,
		Proofs: true})
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	begins := map[string][]int{} // of the lines of a type
	at := 0
	for line := range strings.Lines(string(text)) {
		kind, _, _ := strings.Cut(line, ",")
		begins[kind] = append(begins[kind], at)
		at += len(line)
	}
	kinds := slices.Sorted(maps.Keys(begins))
	count := 150
	if raceEnabled {
		count = 4 * len(kinds) // each line's type twice
	}
	for i := range count {
		at := random.IntN(len(text))
		if i%2 == 0 { // lines of all types alike, wherever they are
			lines := begins[kinds[i/2%len(kinds)]]
			at = lines[random.IntN(len(lines))]
			at += random.IntN(bytes.IndexByte(text[at:], '\n') + 1)
		}
		flip := byte(1 + random.IntN(255))
		flipped := bytes.Clone(text)
		flipped[at] ^= flip
		found, err := verify(t, flipped, s.Genesis())
		if !errors.Is(err, journal.ErrWrong) || len(found.Problems) == 0 {
			t.Fatalf("seed %d: byte %d of %d, ^%#x: %+v %v", seed, at, len(text), flip, found, err)
		}
		// A flip in words is told by its line. One in an encoding may be told at the last part
		// of its block, or at the next block, which follows another one.
		line := 1 + bytes.Count(text[:at], []byte("\n"))
		if problem := found.Problems[0].Line; problem < line-1 {
			t.Errorf("byte %d is in line %d, and line %d is said to be wrong: %s", at, line,
				problem, found.Problems[0].Reason)
		}
	}
}

// What is cut off, left out, moved or taken from another chain is found, with its line.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	s := chain(t)
	whole := string(export(t, journal.FromStore(s), "jsonl",
		journal.Options{To: s.Head().Height}))
	lines := slices.Collect(strings.Lines(whole))
	first := func(prefix string) int {
		return slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
	}
	without := func(i int) string {
		return strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")
	}
	certificate := first(`{"type":"certificate"`)
	change := slices.IndexFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, `{"type":"certificate","height":4,`)
	})
	entry := first(`{"type":"entry","height":3,`)
	second := first(`{"type":"block","height":2,`)
	third := first(`{"type":"block","height":3,`)
	foreign := ledgertest.OperatedGenesis(2)
	for name, c := range map[string]struct {
		text, says string
		line       int
		genesis    *ledger.Genesis
	}{
		"nothing":       {"", "empty", 1, nil},
		"no journal":    {"{}\n", "not the first line", 1, nil},
		"another chain": {whole, "it is the journal of the chain", 1, foreign},
		"no end": {strings.Join(lines[:len(lines)-1], ""), "interrupted", len(lines),
			nil},
		"cut":      {whole[:len(whole)-9], "cut short", len(lines), nil},
		"more":     {whole + whole, "more after the end", len(lines) + 1, nil},
		"no entry": {without(entry), "does not say", entry + 1, nil},
		"no part":  {without(first(`{"type":"part"`)), "no part", 3, nil},
		"no block": {without(first(`{"type":"block"`)), "no place", 2, nil},
		"certificate twice": {strings.Replace(whole, lines[certificate],
			strings.Repeat(lines[certificate], 2), 1), "it certifies block 3", certificate + 2,
			nil},
		"no change certified": {without(change), "epoch 1, not 0",
			first(`{"type":"certificate","height":6,`), nil},
		"another reason": {strings.Replace(whole, "insufficient funds", "overflow", 1),
			"does not say", entry + 2, nil},
		"a block left out": {strings.Join(slices.Delete(slices.Clone(lines), second, third), ""),
			"block 3, after block 1", second + 1, nil},
		"other decimals": {strings.Replace(whole, `"asset":{"asset":"EUR","number":1,"decimals":2`,
			`"asset":{"asset":"EUR","number":1,"decimals":3`, 1), "does not say",
			first(`{"type":"block","height":9,`), nil},
		"another issuer": {strings.Replace(whole, `"issuers":[{"organisation":"acme"}]`,
			`"issuers":[{"organisation":"bank"}]`, 1), "does not say",
			first(`{"type":"block","height":9,`), nil},
		"newer version": {strings.Replace(whole, `"version":1`, `"version":2`, 1),
			"newer version", 1, nil},
	} {
		genesis := c.genesis
		if genesis == nil {
			genesis = s.Genesis()
		}
		found, err := verify(t, []byte(c.text), genesis)
		if !errors.Is(err, journal.ErrWrong) || !strings.Contains(found.Problems[0].Reason,
			c.says) || found.Problems[0].Line != c.line {
			t.Errorf("%s: %+v %v, want %q in line %d", name, found.Problems, err, c.says, c.line)
		}
	}
	if found, err := verify(t, []byte(without(certificate)), s.Genesis()); err != nil ||
		found.Certificates != 7 {
		t.Errorf("a certificate that changes nothing may be missing: %+v %v", found, err)
	}
}

// A journal that is right in all its words and roots is wrong if a signature is, or if too few
// members made a certificate.
func TestForged(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	client := ledgertest.NewClient(genesis, "acme")
	good := client.Bundle(client.Register("mint", "cash"))
	signatures := slices.Clone(good.Signatures())
	signatures[0].Bytes[5] ^= 1
	bad, err := ledger.AssembleBundle([][]byte{good.Entry(0, 0).Body}, signatures)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bundle  *ledger.Bundle
		members []ledger.MemberIndex
		says    string
	}{
		{good, []ledger.MemberIndex{0, 2}, ""},
		{bad, []ledger.MemberIndex{0, 1, 2}, "wrong signature: of organisation acme"},
		{good, []ledger.MemberIndex{1}, "1 of 3 members signed"},
		{good, []ledger.MemberIndex{1, 3}, "3 is no member"},
	} {
		block := ledgertest.Block(genesis, c.bundle)
		source := &fixed{genesis: genesis, blocks: []*ledger.Block{block},
			certificate: ledgertest.Certificate(genesis, 0, block, c.members...)}
		found, err := verify(t, export(t, source, "jsonl", journal.Options{To: 1}), genesis)
		switch {
		case c.says == "" && (err != nil || found.Certified != 1):
			t.Errorf("%+v %v", found, err)
		case c.says != "" && (!errors.Is(err, journal.ErrWrong) ||
			!strings.Contains(found.Problems[0].Reason, c.says)):
			t.Errorf("%+v %v, want %q", found, err, c.says)
		}
	}
}

// A block of another chain, with the height of the next one, is no next block.
func TestOtherBlock(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	client := ledgertest.NewClient(genesis, "acme")
	one := ledgertest.Block(genesis, client.Bundle(client.Register("mint")))
	other := ledgertest.Block(genesis, client.Bundle(client.Register("cash")))
	two := ledgertest.After(other, client.Bundle(client.Register("bank")))
	source := &fixed{genesis: genesis, blocks: []*ledger.Block{one, two}}
	found, err := verify(t, export(t, source, "jsonl", journal.Options{To: 2}), genesis)
	if !errors.Is(err, journal.ErrWrong) || !strings.Contains(found.Problems[0].Reason,
		"block 2 is not the one after block 1") {
		t.Errorf("%+v %v", found, err)
	}
}

// An export that stops at any byte goes on, and the file is the same as without an interruption.
func TestResume(t *testing.T) {
	t.Parallel()
	s := chain(t)
	for _, name := range journal.FormatNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			format, err := journal.FormatOf(name)
			if err != nil {
				t.Fatal(err)
			}
			options := journal.Options{To: s.Head().Height}
			want := export(t, journal.FromStore(s), name, options)
			path := filepath.Join(t.TempDir(), "journal")
			again := func(what string) journal.Written {
				t.Helper()
				written, err := journal.ExportFile(t.Context(), path, journal.FromStore(s), format,
					options)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s: the file differs: %v", what, err)
				}
				return written
			}
			if written := again("new"); written.From != 1 || written.To != options.To {
				t.Error(written)
			}
			if written := again("whole"); written.From != options.To {
				t.Error(written)
			}
			for cut := 0; cut < len(want); cut += 1 + cut/40 {
				if err := os.WriteFile(path, want[:cut], 0o600); err != nil {
					t.Fatal(err)
				}
				again(fmt.Sprintf("cut at %d of %d", cut, len(want)))
			}

			// A chain that has grown.
			shorter := options
			shorter.To = 4
			if err := os.WriteFile(path, export(t, journal.FromStore(s), name, shorter),
				0o600); err != nil {
				t.Fatal(err)
			}
			if written := again("grown"); written.From != 4 {
				t.Error(written)
			}

			// What is not the beginning of this journal stays as it is.
			for _, text := range []string{"precious", strings.Replace(string(want),
				s.GenesisHash().String(), ledger.Hash{}.String(), 1), strings.ReplaceAll(
				string(want), blockHash(t, s, s.Head().Height), ledger.Hash{}.String())} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := journal.ExportFile(t.Context(), path, journal.FromStore(s), format,
					options)
				if got, _ := os.ReadFile(path); !errors.Is(err, journal.ErrOther) ||
					string(got) != text {
					t.Errorf("%.40q: %v", text, err)
				}
			}
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := journal.ExportFile(t.Context(), path, journal.FromStore(s), format,
				shorter); !errors.Is(err, journal.ErrOther) {
				t.Errorf("a file with more blocks: %v", err)
			}
		})
	}
}

func blockHash(t testing.TB, s *store.Store, height ledger.Height) string {
	t.Helper()
	_, hash, err := s.Header(height)
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

// A file whose middle never reached the disk, as after a loss of power, is written anew from there.
func TestResumeAfterLossOfPower(t *testing.T) {
	t.Parallel()
	s := chain(t)
	options := journal.Options{To: s.Head().Height}
	for _, name := range journal.FormatNames() {
		want := export(t, journal.FromStore(s), name, options)
		format, err := journal.FormatOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for height := ledger.Height(2); height < options.To; height++ {
			end := len(export(t, journal.FromStore(s), name, journal.Options{To: height}))
			torn := bytes.Clone(want[:len(want)-1])
			clear(torn[end-400 : end-200])
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := journal.ExportFile(t.Context(), path, journal.FromStore(s), format,
				options); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: a hole in block %d stays: %v", name, height, err)
			}
		}
	}
}

// An export does not go on after amounts that it wrote as whole numbers, once the asset has
// decimals. A table of rows does: it has the whole numbers beside the decimal form.
func TestRegisteredSince(t *testing.T) {
	t.Parallel()
	s := chain(t)
	for _, name := range journal.FormatNames() {
		format, err := journal.FormatOf(name)
		if err != nil {
			t.Fatal(err)
		}
		want := error(nil)
		if name == "hledger" || name == "beancount" {
			want = journal.ErrRegistered
		}
		path := filepath.Join(t.TempDir(), "journal")
		source := journal.FromStore(s)
		if _, err := journal.ExportFile(t.Context(), path, source, format,
			journal.Options{To: 7}); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := journal.ExportFile(t.Context(), path, source, format,
			journal.Options{To: s.Head().Height}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		after, err := os.ReadFile(path)
		if err != nil || want != nil && !bytes.Equal(before, after) {
			t.Errorf("%s: the file changed: %v", name, err)
		}
	}
}
