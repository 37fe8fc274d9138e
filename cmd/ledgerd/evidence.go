package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
)

// evidenceReport is what ledgerd evidence --json prints.
type evidenceReport struct {
	Evidence        []pieceReport `json:"evidence"`
	CertifiedHeight uint64        `json:"certified_height,omitempty"`
}

// pieceReport is one piece of evidence.
type pieceReport struct {
	Height uint64     `json:"height"`
	First  sideReport `json:"first"`
	Second sideReport `json:"second"`
	// Members signed both blocks. If there are none, the signers of one of them are wrong.
	Members []uint32 `json:"members"`
	Names   []string `json:"names,omitempty"`
	// Encoded is the evidence in the form that anyone with the members' keys can verify, in hex.
	Encoded string `json:"encoded,omitempty"`
}

// sideReport is one of two blocks that cannot both be true, and its signers.
type sideReport struct {
	Hash    string   `json:"hash"`
	Epoch   uint64   `json:"epoch"`
	Members []uint32 `json:"members"`
	Names   []string `json:"names,omitempty"`
}

// evidenceOptions are the flags of ledgerd evidence.
type evidenceOptions struct {
	remote  remoteOptions
	home    string
	genesis string
	json    bool
}

// newEvidenceCommand returns the `ledgerd evidence` command.
func newEvidenceCommand() *cobra.Command {
	var options evidenceOptions
	command := &cobra.Command{
		Use:   "evidence [--home DIR | FILE FILE...]",
		Short: "Show what proves that a member told two stories",
		Long: `Show what proves that a member told two stories.

Members sign the blocks that they and a majority stored. A member that works never
signs two blocks of one height. Each node keeps what proves that a member did: two
signed blocks of one height, with their signers. The command asks a node for it; with
--home it reads the folder of a node that does not run.

With FILEs, which ` + "`ledgerd tx status ID --proof FILE`" + ` wrote, the command compares
what several nodes, or one node at several times, have proved to you. It checks each
proof from the genesis, and shows where two of them contradict each other. The exit
status is then 1.

If one member signed both blocks, its program or its key is not its operator's any
more: remove it with ` + "`ledgerd cluster leave`" + `. If no member did, or a majority did, an
operator recovered the ledger from a loss of blocks (` + "`ledgerd recover`" + `), or a majority
of the members lie: stop writing, and compare ` + "`ledgerd verify`" + ` of all nodes.`,
		Example: `  ledgerd evidence
  ledgerd evidence --home net/node-0 --json
  ledgerd evidence monday.proof friday.proof --genesis genesis.json`,
		RunE: options.run,
	}
	options.remote.bind(command, false)
	flags := command.Flags()
	flags.StringVar(&options.home, "home", "", "read the home folder `DIR` of a stopped node")
	flags.StringVar(&options.genesis, "genesis", "", "the ledger's genesis `FILE`, to check FILEs")
	addJSONFlag(command, &options.json)
	return command
}

func (o *evidenceOptions) run(command *cobra.Command, arguments []string) error {
	var report *evidenceReport
	var err error
	switch {
	case len(arguments) > 0 && o.home != "":
		return usagef("give --home or FILEs, not both")
	case len(arguments) == 1:
		return usagef("name at least two FILEs to compare")
	case len(arguments) > 0 && o.genesis == "":
		return usagef("to check proofs, name the ledger's genesis with --genesis FILE: it is %s "+
			"in the home of each node, and must come from a source that you trust",
			home.GenesisFile)
	case len(arguments) == 0 && o.genesis != "":
		return usagef("--genesis checks FILEs: name at least two to compare")
	case len(arguments) > 0:
		report, err = compareProofs(o.genesis, arguments)
	case o.home != "":
		report, err = readEvidence(o.home)
	default:
		report, err = o.ask(command.Context())
	}
	if err != nil {
		return err
	}
	var failure error
	if len(arguments) > 0 && len(report.Evidence) > 0 {
		failure = &reportedError{errors.New("the proofs contradict each other")}
	}
	if o.json {
		return errors.Join(writeJSON(command.OutOrStdout(), report), failure)
	}
	return errors.Join(report.write(command.OutOrStdout(), len(arguments)), failure)
}

// ask gets the evidence of a node.
func (o *evidenceOptions) ask(parent context.Context) (*evidenceReport, error) {
	nodes, ctx, done, err := o.remote.connect(parent)
	if err != nil {
		return nil, err
	}
	defer done()
	answer, err := nodes.Evidence(ctx)
	if err != nil {
		return nil, err
	}
	names := map[ledger.MemberIndex]string{}
	report := &evidenceReport{Evidence: []pieceReport{},
		CertifiedHeight: answer.GetCertifiedHeight()}
	for _, shown := range answer.GetEvidence() {
		e, err := ledger.DecodeEvidence(shown.GetEncoded())
		if err != nil {
			return nil, fmt.Errorf("the evidence of %s cannot be read: %w", nodes.Current(), err)
		}
		for _, seal := range append(shown.GetFirst().GetSeals(), shown.GetSecond().GetSeals()...) {
			names[ledger.MemberIndex(seal.GetMember())] = seal.GetName()
		}
		report.Evidence = append(report.Evidence, reportEvidence(e, func(
			index ledger.MemberIndex) string {
			return names[index]
		}))
	}
	return report, nil
}

// readEvidence reads the evidence of a stopped node.
func readEvidence(dir string) (*evidenceReport, error) {
	h, err := loadHome(dir)
	if err != nil {
		return nil, err
	}
	if err := hasData(h); err != nil {
		return nil, err
	}
	opened, err := store.Open(h.Data(), h.Genesis, storeOptions(h))
	if err != nil {
		return nil, explainStore(h, err)
	}
	kept, err := opened.Evidence()
	report := &evidenceReport{Evidence: []pieceReport{},
		CertifiedHeight: uint64(opened.CertifiedHeight())}
	membership, former := opened.Membership(), opened.FormerMembers()
	for _, e := range kept {
		report.Evidence = append(report.Evidence, reportEvidence(e, func(
			index ledger.MemberIndex) string {
			if member, is := membership.Find(index); is {
				return member.Name
			}
			for i := range former {
				if former[i].Index == index {
					return former[i].Name
				}
			}
			return ""
		}))
	}
	return report, errors.Join(err, opened.Close())
}

func reportEvidence(e *ledger.Evidence, name func(ledger.MemberIndex) string) pieceReport {
	side := func(c *ledger.Certificate) sideReport {
		shown := sideReport{Hash: c.Hash.String(), Epoch: uint64(c.Epoch), Members: []uint32{}}
		for i := range c.Seals {
			shown.Members = append(shown.Members, uint32(c.Seals[i].Member))
			shown.Names = append(shown.Names, name(c.Seals[i].Member))
		}
		return shown
	}
	report := pieceReport{Height: uint64(e.Height()), First: side(e.First), Second: side(e.Second),
		Members: []uint32{}, Encoded: hex.EncodeToString(e.Encode())}
	for _, member := range e.Members() {
		report.Members = append(report.Members, uint32(member))
		report.Names = append(report.Names, name(member))
	}
	return report
}

// story is what a proof says of one chain: the hashes of blocks, and the certificate that follows
// each.
type story struct {
	genesis ledger.Hash
	hashes  map[ledger.Height]ledger.Hash
	signed  map[ledger.Height]*ledger.Certificate
}

// compareProofs checks proofs and finds where two of them contradict each other.
func compareProofs(genesisFile string, files []string) (*evidenceReport, error) {
	genesis, err := home.ReadGenesis(genesisFile)
	if err != nil {
		return nil, err
	}
	report := &evidenceReport{Evidence: []pieceReport{}}
	var stories []*story
	for _, file := range files {
		next, err := readStory(file, genesis)
		if err != nil {
			return nil, fmt.Errorf("%s proves nothing: %w", file, err)
		}
		for _, other := range stories {
			if e := next.contradicts(other); e != nil {
				piece := reportEvidence(e, func(ledger.MemberIndex) string { return "" })
				piece.Encoded = ""
				if e.First.Height == e.Second.Height {
					piece.Encoded = hex.EncodeToString(e.Encode())
				}
				report.Evidence = append(report.Evidence, piece)
			}
		}
		stories = append(stories, next)
	}
	return report, nil
}

// readStory reads a proof and checks it from the genesis on.
func readStory(file string, genesis *ledger.Genesis) (*story, error) {
	proof, err := readProof(file)
	if err != nil {
		return nil, err
	}
	checked, err := reportProof(proof, genesis)
	if err != nil {
		return nil, err
	}
	chain, err := client.GenesisOf(genesis, checked.Shard)
	if err != nil {
		return nil, err
	}
	s := &story{genesis: chain.Hash(), hashes: make(map[ledger.Height]ledger.Hash),
		signed: make(map[ledger.Height]*ledger.Certificate)}
	say := func(height ledger.Height, hash ledger.Hash, by *ledger.Certificate) {
		s.hashes[height], s.signed[height] = hash, by
	}
	for _, change := range proof.Finality.Changes {
		say(change.Height, change.Hash, change)
	}
	for _, encoded := range append([][]byte{proof.Header}, proof.Finality.Headers...) {
		header, err := ledger.DecodeHeader(encoded)
		if err != nil {
			return nil, err
		}
		say(header.Height, header.Hash(), proof.Finality.Certificate)
		if header.Height > 1 {
			say(header.Height-1, header.Previous, proof.Finality.Certificate)
		}
	}
	return s, nil
}

// contradicts returns the lowest contradiction of two stories of one chain, or nil.
func (s *story) contradicts(other *story) *ledger.Evidence {
	if s.genesis != other.genesis {
		return nil
	}
	var lowest ledger.Height
	for height, hash := range s.hashes {
		if theirs, known := other.hashes[height]; known && theirs != hash &&
			(lowest == 0 || height < lowest) {
			lowest = height
		}
	}
	if lowest == 0 {
		return nil
	}
	return &ledger.Evidence{First: s.signed[lowest], Second: other.signed[lowest]}
}

func (r *evidenceReport) write(out io.Writer, files int) error {
	if len(r.Evidence) == 0 {
		text := fmt.Sprintf("no evidence against any member; certified up to block %d\n",
			r.CertifiedHeight)
		if files > 0 {
			text = fmt.Sprintf("all %d proofs hold and agree with each other\n", files)
		}
		_, err := io.WriteString(out, text)
		return err
	}
	for i := range r.Evidence {
		piece := &r.Evidence[i]
		if _, err := fmt.Fprintf(out, "block %d: two blocks are signed\n  %s by %s\n  %s by %s\n%s",
			piece.Height, piece.First.Hash, signers(piece.First.Members, piece.First.Names),
			piece.Second.Hash, signers(piece.Second.Members, piece.Second.Names),
			piece.verdict()); err != nil {
			return err
		}
	}
	return nil
}

// verdict says what follows from the evidence.
func (p *pieceReport) verdict() string {
	few, many := &p.First, &p.Second
	if len(few.Members) > len(many.Members) {
		few, many = many, few
	}
	switch {
	case len(p.Members) > 0:
		return fmt.Sprintf("  both by %s\n", signers(p.Members, p.Names))
	case len(few.Members) < len(many.Members):
		return fmt.Sprintf("  no member signed both: %s contradicts %s\n",
			signers(few.Members, few.Names), signers(many.Members, many.Names))
	}
	return "  no member signed both: the signers of one of them are wrong\n"
}

// signers names members.
func signers(members []uint32, names []string) string {
	var all []string
	for i, member := range members {
		if i < len(names) && names[i] != "" {
			all = append(all, sanitize(names[i], 0))
		} else {
			all = append(all, fmt.Sprintf("member %d", member))
		}
	}
	return strings.Join(all, ", ")
}
