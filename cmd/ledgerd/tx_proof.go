package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/home"
)

// proofReport is the result of checking a proof.
type proofReport struct {
	Verified  bool     `json:"verified"`
	BlockHash string   `json:"block_hash"`
	SignedBy  []string `json:"signed_by"`
	Confirmed []string `json:"confirmed_by,omitempty"` // nodes that have this block
	// Certificate is set if the proof leads from the genesis to the block.
	Certificate *certificateReport `json:"certificate,omitempty"`
}

// certificateReport is a certificate that was checked from the genesis on.
type certificateReport struct {
	Height    uint64   `json:"height"`
	Hash      string   `json:"hash"`
	Epoch     uint64   `json:"epoch"`
	Members   []uint32 `json:"members"`
	MembersOf int      `json:"members_of"` // how many members might have signed
	// Changes is the number of joins and leaves that were followed from the genesis.
	Changes int `json:"changes"`
}

// bareProof is the value of --proof without a file.
const bareProof = "true"

// certificatePatience bounds how long a proof to be kept waits for its certificates.
const certificatePatience = 5 * time.Second

// maxProofFile bounds a file with a proof, in bytes.
const maxProofFile = ledger.MaxFinalityBytes + 1<<20

// proofArguments sorts out the forms of the command: an ID, an ID with --proof and a FILE to write,
// or --proof and a FILE to check.
func (o *txStatusOptions) proofArguments(arguments []string) (id ledger.Hash, check string,
	err error) {
	file := ""
	if o.proof != "" && o.proof != bareProof {
		file = o.proof
	}
	for _, argument := range arguments {
		parsed, failure := ledger.ParseHash(argument)
		switch {
		case failure == nil && id == (ledger.Hash{}):
			id = parsed
		case o.proof != "" && file == "":
			file = argument
		default:
			return id, "", usagef("transaction id %q: %w", argument, failure)
		}
	}
	switch {
	case id == (ledger.Hash{}) && file == "":
		return id, "", usagef("which transaction? Name its id, or a file with --proof FILE")
	case id == (ledger.Hash{}) && o.genesis == "":
		return id, "",
			usagef("to check %s offline, name the ledger's genesis with --genesis FILE: "+
				"it is %s in the home of each node, and must come from a source that you trust",
				file,
				home.GenesisFile)
	case id == (ledger.Hash{}):
		return id, file, nil
	case o.out != "" && o.proof == "":
		return id, "", usagef("--out keeps a proof: give --proof as well")
	case o.out != "" && file != "":
		return id, "", usagef("--out %s and --proof %s name two files for one proof", o.out, file)
	case o.out == "":
		o.out = file
	}
	return id, "", nil
}

// checkFile checks the proof in a file, with nothing but the genesis.
func (o *txStatusOptions) checkFile(command *cobra.Command, file string) error {
	genesis, err := home.ReadGenesis(o.genesis)
	if err != nil {
		return err
	}
	proof, err := readProof(file)
	if err != nil {
		return err
	}
	report, err := reportProof(proof, genesis)
	if err != nil {
		return fmt.Errorf("%s proves nothing: %w", file, err)
	}
	if o.json {
		return errors.Join(writeJSON(command.OutOrStdout(), report), report.failure())
	}
	return errors.Join(report.write(command), report.failure())
}

// readProof reads a file with a proof, and verifies nothing. The file may be a pipe or a device.
func readProof(file string) (*ledger.CertifiedProof, error) {
	data, err := readBounded(file, maxProofFile)
	if err != nil {
		return nil, err
	}
	proof, err := ledger.DecodeCertifiedProof(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no proof that `ledgerd tx status ID --proof FILE` wrote: %w",
			file, err)
	}
	return proof, nil
}

// mayKeep returns an error if a proof written to a file would replace something else than a proof,
// such as the genesis.
func mayKeep(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder: name a file for the proof", file)
	case !info.Mode().IsRegular() || info.Size() == 0:
		return nil
	}
	if _, err := readProof(file); err != nil {
		return fmt.Errorf("%s exists and is no proof: name another file for the proof", file)
	}
	return nil
}

// keepProof writes a proof to a file, whole or not at all, or to a pipe or device.
func keepProof(file string, encoded []byte) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(file, encoded, 0o644)
	}
	return home.WriteFile(file, encoded, 0o644)
}

// reportProof checks a proof from the genesis on. It tries the genesis of each shard of the book,
// since the proof does not name its shard.
func reportProof(proof *ledger.CertifiedProof, genesis *ledger.Genesis) (*transactionReport,
	error) {
	var err error
	shard, chain := uint32(0), genesis
	for ; int(shard) < genesis.BookShards(); shard++ {
		if chain, err = client.GenesisOf(genesis, shard); err != nil {
			return nil, err
		}
		if err = ledger.VerifyCertifiedProof(proof, chain); !errors.Is(err,
			ledger.ErrCertificate) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	report, err := reportProven(proof.Proof, nil)
	if err != nil {
		return nil, err
	}
	report.Shard = shard
	report.Proof.Certificate, err = reportFinality(proof.Finality, chain)
	return report, err
}

// reportProven describes what a proof that was checked says.
func reportProven(proof *ledger.Proof, change *changeReport) (*transactionReport, error) {
	header, err := ledger.DecodeHeader(proof.Header)
	if err != nil {
		return nil, err
	}
	transaction, err := ledger.DecodeBody(proof.Body)
	if err != nil {
		return nil, err
	}
	report := &transactionReport{
		statusReport: statusReport{ID: proof.ID.String(), State: "applied",
			Height: uint64(header.Height), Index: &proof.Index},
		BlockHash: proof.BlockHash.String(), BlockTimeMS: uint64(header.Time),
		Signer: string(transaction.Signer), LastValid: uint64(transaction.LastValid),
		DeadlineMS: uint64(transaction.Deadline),
		Proof:      &proofReport{Verified: true, BlockHash: proof.BlockHash.String()},
	}
	if !proof.Result.OK() {
		report.State, report.ReasonCode = "failed", api.ReasonCode(proof.Result.Code)
		report.Reason = proof.Result.String()
	}
	if crosses(proof) {
		report.State = "waiting" // the block does not say how it ended
	}
	for _, signature := range proof.Signatures {
		report.SignedBy = append(report.SignedBy, signerName(string(signature.Organisation),
			change))
	}
	report.Proof.SignedBy = report.SignedBy
	if c := transaction.Cancellation; c != nil {
		report.Cancels = &cancelsReport{Transaction: c.Transaction.String(),
			Shard: uint32(c.Shard)}
	}
	for i := range transaction.Postings {
		posting := &transaction.Postings[i]
		report.Postings = append(report.Postings, postingReport{Account: string(posting.Account),
			Asset: string(posting.Asset), Amount: posting.Amount.String()})
	}
	return report, nil
}

// crosses reports whether the outcome of the transaction also depends on other shards.
func crosses(proof *ledger.Proof) bool {
	return proof.Result.Code == ledger.SetAside || proof.Result.Code == ledger.Relayed
}

// agrees returns an error if a node says something else of a transaction than it proved.
func (r *transactionReport) agrees(proven *transactionReport, proof *ledger.Proof) error {
	switch {
	case r.Signer != proven.Signer || r.LastValid != proven.LastValid ||
		r.DeadlineMS != proven.DeadlineMS || !r.Cancels.same(proven.Cancels) ||
		!slices.Equal(r.Postings, proven.Postings):
		return errors.New("the transaction that the node shows is not the one that it proved: " +
			"do not trust this node")
	case !crosses(proof) && (r.Height != proven.Height ||
		(r.State == "failed") != (proven.State == "failed")):
		return fmt.Errorf("the node says that the transaction is %s, and proved that it is %s: do "+
			"not trust this node", r.place(), proven.place())
	}
	return nil
}

// same reports whether both cancel the same at the same shard. What became of that is in no proof.
func (r *cancelsReport) same(other *cancelsReport) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Transaction == other.Transaction && r.Shard == other.Shard
}

// reportFinality describes certificates that were checked.
func reportFinality(finality *ledger.Finality, genesis *ledger.Genesis) (*certificateReport,
	error) {
	auditor := ledger.NewAuditor(genesis)
	for _, change := range finality.Changes {
		if err := auditor.Follow(change); err != nil {
			return nil, err
		}
	}
	report := &certificateReport{Height: uint64(finality.Certificate.Height),
		Hash: finality.Certificate.Hash.String(), Epoch: uint64(finality.Certificate.Epoch),
		Members: []uint32{}, MembersOf: len(auditor.Members().Keys), Changes: len(finality.Changes)}
	for i := range finality.Certificate.Seals {
		report.Members = append(report.Members, uint32(finality.Certificate.Seals[i].Member))
	}
	return report, auditor.Check(finality.Certificate)
}

// text describes the certificate in a line.
func (r *certificateReport) text() string {
	return fmt.Sprintf("certified by %d of %s in block %d, from the genesis on",
		len(r.Members), plural(r.MembersOf, "member"), r.Height)
}

// check fetches a proof and checks it: from the genesis on if one was given, and otherwise by
// asking every node that the user named for its block.
func (o *txStatusOptions) check(
	ctx context.Context, nodes *client.Client, id ledger.Hash, shown *transactionReport,
) (*proofReport, error) {
	whole := &ledger.CertifiedProof{}
	report := &proofReport{Verified: true}
	var err error
	if o.genesis != "" {
		var genesis *ledger.Genesis
		if genesis, err = home.ReadGenesis(o.genesis); err != nil {
			return nil, err
		}
		if whole, err = nodes.CertifiedProof(ctx, id, genesis); err != nil {
			return nil, err
		}
		checked, err := reportProof(whole, genesis)
		if err != nil {
			return nil, err
		}
		report.Certificate = checked.Proof.Certificate
	} else {
		if whole.Proof, err = nodes.VerifiedProof(ctx, id); err != nil {
			return nil, err
		}
		report.Confirmed = nodes.URLs()
		if o.out != "" {
			whole.Finality = o.finality(ctx, nodes, whole.Proof)
		}
	}
	proven, err := reportProven(whole.Proof, shown.Change)
	if err == nil {
		err = shown.agrees(proven, whole.Proof)
	}
	if err != nil {
		return nil, err
	}
	report.BlockHash, report.SignedBy = proven.BlockHash, proven.SignedBy
	if o.out != "" {
		return report, keepProof(o.out, whole.Encode())
	}
	return report, nil
}

// finality returns the certificates that the node has for a proof to be kept, or nil if it has none
// yet. They are verified when the file is checked.
func (o *txStatusOptions) finality(ctx context.Context, nodes *client.Client,
	proof *ledger.Proof) *ledger.Finality {
	waiting, cancel := context.WithTimeout(ctx, certificatePatience)
	defer cancel()
	for {
		answer, err := nodes.Proof(waiting, proof.ID)
		if err != nil {
			return nil
		}
		finality, err := ledger.DecodeFinality(answer.GetFinality())
		if err == nil {
			return finality
		}
		if sleep(waiting, membershipPause) != nil {
			return nil
		}
	}
}

// text describes what the proof shows, in a line.
func (r *proofReport) text() string {
	text := "holds; signed by " + strings.Join(r.SignedBy, ", ")
	if r.Certificate != nil {
		text += "; " + r.Certificate.text()
	}
	if len(r.Confirmed) > 0 {
		text += "; block confirmed by " + strings.Join(r.Confirmed, ", ")
	}
	return text
}
