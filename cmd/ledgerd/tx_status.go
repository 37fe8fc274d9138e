package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// transactionReport is a transaction as ledgerd tx status --json prints it.
type transactionReport struct {
	statusReport
	BlockHash   string               `json:"block_hash,omitempty"`
	BlockTimeMS uint64               `json:"block_time_ms,omitempty"`
	Signer      string               `json:"signer,omitempty"`
	SignedBy    []string             `json:"signed_by,omitempty"`
	Postings    []postingReport      `json:"postings,omitempty"`
	Records     []recordChangeReport `json:"records,omitempty"`
	Accounts    []string             `json:"accounts,omitempty"`
	Registered  []string             `json:"organisations,omitempty"`
	Change      *changeReport        `json:"membership_change,omitempty"`
	Policy      *ledger.Policy       `json:"policy,omitempty"`
	Asset       *ledger.AssetChange  `json:"asset,omitempty"`
	Hold        *ledger.Hold         `json:"hold,omitempty"`     // that it places
	HoldEnd     *ledger.HoldEnd      `json:"hold_end,omitempty"` // that it ends
	Details     *ledger.Details      `json:"details,omitempty"`
	// Schedule is the schedule that it places, ScheduleEnd the one that it ends, and Occurrence the
	// occurrence of one that it is.
	Schedule    *ledger.Schedule    `json:"schedule,omitempty"`
	ScheduleEnd *ledger.ScheduleEnd `json:"schedule_end,omitempty"`
	Occurrence  *ledger.Occurrence  `json:"occurrence,omitempty"`
	// Account is the change of the terms of an account.
	Account    *ledger.AccountChange `json:"account,omitempty"`
	Charter    *charterReport        `json:"charter,omitempty"`
	LastValid  uint64                `json:"last_valid,omitempty"`
	DeadlineMS uint64                `json:"deadline_ms,omitempty"`
	Note       any                   `json:"note,omitempty"`
	Proof      *proofReport          `json:"proof,omitempty"`
	Places     []placeReport         `json:"places,omitempty"`  // in a ledger of several shards
	Verdict    *verdictReport        `json:"verdict,omitempty"` // if it is another shard's verdict
	Cancels    *cancelsReport        `json:"cancels,omitempty"` // if it is a cancellation
}

// verdictReport is a shard's verdict about a transaction, as an entry of another shard's chain.
type verdictReport struct {
	Transaction string `json:"transaction"`
	Shard       uint32 `json:"shard"`
	Says        string `json:"says"` // good, or the code of the reason
}

// cancelsReport is what a cancellation cancels. Place is where that is in the chain of the same
// shard, once the cancellation is in a block, as the node says: no proof of the cancellation covers
// it.
type cancelsReport struct {
	Transaction string       `json:"transaction"`
	Shard       uint32       `json:"shard"`
	Place       *placeReport `json:"place,omitempty"`
}

// placeReport is a transaction in the chain of one shard.
type placeReport struct {
	Shard         uint32   `json:"shard"`
	State         string   `json:"state"` // settled, refused, waiting, passed, absent or unanswered
	Home          bool     `json:"home"`  // the signer's home, which decides
	Entry         bool     `json:"entry"` // its entry into the tree
	Height        uint64   `json:"height,omitempty"`
	Index         uint32   `json:"index,omitempty"`
	BlockHash     string   `json:"block_hash,omitempty"`
	TimeMS        uint64   `json:"time_ms,omitempty"`
	Level         string   `json:"level,omitempty"`
	Verdict       string   `json:"verdict,omitempty"`
	SettledHeight uint64   `json:"settled_height,omitempty"`
	SettledIndex  uint32   `json:"settled_index,omitempty"`
	WaitsFor      []uint32 `json:"waits_for,omitempty"`
	StreamNumber  uint64   `json:"stream_number,omitempty"`
	Overdue       bool     `json:"overdue,omitempty"` // it has waited for longer than alarm_after
}

// recordChangeReport is a record that a transaction sets.
type recordChangeReport struct {
	Key   string `json:"key"`
	Bytes int    `json:"bytes"`
}

// txStatusOptions are the flags of ledgerd tx status.
type txStatusOptions struct {
	remote  remoteOptions
	wait    string
	proof   string // "", bareProof or a file
	genesis string
	out     string
	json    bool
}

// newTxStatusCommand returns the `ledgerd tx status` command.
func newTxStatusCommand() *cobra.Command {
	var options txStatusOptions
	command := &cobra.Command{
		Use:   "status {ID [--proof [FILE]] | --proof FILE}",
		Short: "Show the outcome of a transaction, and prove it",
		Long: `Show the outcome of a transaction, and prove it.

Without --wait the command shows the state that the node knows now; with it, the
command waits until the transaction has reached that level, failed or expired. The
exit status is 1 for a transaction that failed, expired or is not known.

With --proof the node has to prove that the transaction is in its block with
this result and these signatures, and the command checks the proof. With
--genesis the node also has to prove that the block is final: the certificates
lead from the members of the genesis, over all changes of the members, to a
majority that signed the block or one after it. Nothing but the genesis has to be
trusted. Without --genesis the command asks each node of --node whether it has
this block.

A FILE after --proof keeps the proof, with the certificates. Without an ID, the
command checks the proof in the FILE, offline:

  ledgerd tx status --proof FILE --genesis genesis.json

In a ledger of several shards a transaction may concern several of them: it takes
effect in all or in none, and its state is that of the signer's home. The command
also shows the state in each chain:

  settled     it took effect
  refused     it changed nothing: the shard, or another, refused its part
  waiting     its part is set aside until the other shards' verdicts arrive
  passed      it was only passed on to the shards below
  absent      it is not there yet
  unanswered  no node of that shard answers

VERDICT is the shard's verdict about its own part, SETTLED the block in which its
wait ended, STREAM its number in the stream of the shard above. A transaction that
has waited for longer than alarm_after of that shard's nodes is overdue.`,
		Example: `  ledgerd tx status 6a0c9f… --wait durable
  ledgerd tx status 6a0c9f… --proof --node http://127.0.0.1:8080,http://127.0.0.1:8082
  ledgerd tx status 6a0c9f… --proof payment.proof --genesis genesis.json
  ledgerd tx status --proof payment.proof --genesis genesis.json
  ledgerd tx status 6a0c9f… --json | jq -r '.places[] | "\(.shard) \(.state)"'`,
		Args:              cobra.MaximumNArgs(2),
		RunE:              options.run,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.remote.bind(command, false)
	flags := command.Flags()
	flags.StringVar(&options.wait, "wait", "",
		"answer when it is ordered, stored, durable or durable-everywhere (in all shards that it "+
			"concerns; default at once)")
	flags.StringVar(&options.proof, "proof", "",
		"have the node prove it, check the proof, and keep it in `FILE` if one is named")
	flags.Lookup("proof").NoOptDefVal = bareProof
	flags.StringVar(&options.genesis, "genesis", "",
		"check the certificates of the proof's block from this genesis `FILE`; goes with --proof")
	flags.StringVar(&options.out, "out", "",
		"write the checked proof to this file; the same as a FILE after --proof")
	addJSONFlag(command, &options.json)
	completeFlag(command, "wait", cobra.FixedCompletions(waitLevels,
		cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (o *txStatusOptions) run(command *cobra.Command, arguments []string) error {
	if o.genesis != "" && o.proof == "" {
		return usagef("--genesis checks a proof: give --proof as well")
	}
	id, file, err := o.proofArguments(arguments)
	if err != nil {
		return err
	}
	if file != "" {
		return o.checkFile(command, file)
	}
	if o.out != "" {
		if err := mayKeep(o.out); err != nil {
			return err
		}
	}
	level := ledgerdv1.Level_LEVEL_UNSPECIFIED
	if o.wait != "" {
		if level, err = parseLevel(o.wait); err != nil {
			return err
		}
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	var transaction *ledgerdv1.Transaction
	if level == ledgerdv1.Level_LEVEL_UNSPECIFIED {
		transaction, err = nodes.Transaction(ctx, id)
	} else {
		transaction, err = nodes.Wait(ctx, id, level)
	}
	if errors.Is(err, context.DeadlineExceeded) && transaction != nil {
		err = fmt.Errorf("the transaction is %s after %s, not %s",
			reportStatus(transaction.GetStatus()).place(), o.remote.timeout, o.wait)
	}
	if err != nil {
		return err
	}
	report := reportTransaction(transaction)
	if report.State == "unknown" {
		return fmt.Errorf("the node at %s does not know a transaction %s", nodes.Current(), id)
	}
	if o.proof != "" {
		if report.Proof, err = o.check(ctx, nodes, id, report); err != nil {
			return err
		}
	}
	decimalPostings(ctx, newDecimals(nodes), report.Postings)
	if d := report.Details; d != nil {
		report.nameKeyHolder(ctx, nodes, ledger.OrganisationName(report.Signer), d.Key)
	}
	if o.json {
		return errors.Join(writeJSON(command.OutOrStdout(), report), report.failure())
	}
	return errors.Join(report.write(command), report.failure())
}

func reportTransaction(transaction *ledgerdv1.Transaction) *transactionReport {
	body := transaction.GetBody()
	report := &transactionReport{
		statusReport: reportStatus(transaction.GetStatus()),
		BlockTimeMS:  transaction.GetBlockTimeMs(), Signer: body.GetSigner(),
		Change:    reportChange(body.GetMembershipChange()),
		LastValid: body.GetLastValid(), DeadlineMS: body.GetDeadline(),
		Note:     noteReport(body.GetNote()),
		Postings: reportPostings(body.GetPostings()),
	}
	if hash := transaction.GetBlockHash(); len(hash) > 0 {
		report.BlockHash = fmt.Sprintf("%x", hash)
	}
	for _, signature := range transaction.GetSignatures() {
		report.SignedBy = append(report.SignedBy, signerName(signature.GetOrganisation(),
			report.Change))
	}
	for _, record := range body.GetRecords() {
		report.Records = append(report.Records, recordChangeReport{record.GetKey(),
			len(record.GetValue())})
	}
	for _, opening := range body.GetAccounts() {
		report.Accounts = append(report.Accounts, opening.GetAccount())
	}
	for _, registration := range body.GetOrganisations() {
		report.Registered = append(report.Registered, registration.GetName())
	}
	if entry, err := ledger.DecodeBody(transaction.GetCanonical()); err == nil &&
		entry.Verdict != nil {
		report.Verdict = &verdictReport{Transaction: entry.Verdict.ID.String(),
			Shard: uint32(entry.Verdict.Shard), Says: "good"}
		if !entry.Verdict.Good() {
			report.Verdict.Says = api.ReasonCode(entry.Verdict.Result.Code)
		}
	}
	report.Policy, report.Charter = reportRules(body)
	report.Asset = reportAssetChange(body.GetAsset())
	if entry, err := ledger.DecodeBody(transaction.GetCanonical()); err == nil {
		report.Hold, report.HoldEnd, report.Details = entry.Hold, entry.HoldEnd, entry.Details
		report.Schedule, report.ScheduleEnd, report.Occurrence = entry.Schedule,
			entry.ScheduleEnd, entry.Occurrence
	}
	report.Account = reportAccountChange(body.GetAccountChange())
	if cancellation := body.GetCancellation(); cancellation != nil {
		report.Cancels = &cancelsReport{Transaction: cancellation.GetTransactionHex(),
			Shard: cancellation.GetShard()}
		if place := transaction.GetCancelledPlace(); place != nil {
			reported := reportPlace(place)
			report.Cancels.Place = &reported
		}
	}
	for _, place := range transaction.GetPlaces() {
		report.Places = append(report.Places, reportPlace(place))
	}
	return report
}

func reportPlace(place *ledgerdv1.ShardPlace) placeReport {
	return placeReport{
		Shard: place.GetShard(), State: place.GetState(), Home: place.GetHome(),
		Entry: place.GetEntry(), Height: place.GetHeight(), Index: place.GetIndex(),
		BlockHash: place.GetBlockHashHex(), TimeMS: place.GetTimeMs(), Level: placeLevel(place),
		Verdict: place.GetVerdict(), SettledHeight: place.GetSettledHeight(),
		SettledIndex: place.GetSettledIndex(), WaitsFor: place.GetWaitsFor(),
		StreamNumber: place.GetStreamNumber(), Overdue: place.GetOverdue(),
	}
}

func placeLevel(place *ledgerdv1.ShardPlace) string {
	if place.GetLevel() == ledgerdv1.Level_LEVEL_UNSPECIFIED {
		return ""
	}
	return levelName(place.GetLevel())
}

// writePlaces prints where a transaction is in the tree.
func (r *transactionReport) writePlaces(out io.Writer) error {
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	rows := table{header: []string{"SHARD", "STATE", "BLOCK", "SETTLED", "LEVEL", "VERDICT",
		"STREAM", ""}, right: []bool{true, false, true, true, false, false, true},
		colour: func(column int, cell string) string {
			if column == 1 {
				return colourOfPlace(cell)
			}
			return ""
		}}
	number := func(value uint64) string {
		if value == 0 {
			return "-"
		}
		return fmt.Sprint(value)
	}
	word := func(text string) string {
		if text == "" {
			return "-"
		}
		return sanitize(text, 0)
	}
	for _, place := range r.Places {
		var remarks []string
		if place.Home {
			remarks = append(remarks, "home")
		}
		if place.Entry {
			remarks = append(remarks, "entry")
		}
		if len(place.WaitsFor) > 0 {
			remarks = append(remarks, "waiting for "+client.ShardNames(place.WaitsFor))
		}
		if place.Overdue {
			remarks = append(remarks, "overdue")
		}
		rows.add(fmt.Sprint(place.Shard), sanitize(place.State, 0), number(place.Height),
			number(place.SettledHeight), word(place.Level), word(place.Verdict),
			number(place.StreamNumber), strings.Join(remarks, ", "))
	}
	return rows.write(out)
}

// colourOfPlace returns the colour of a transaction's state in one shard.
func colourOfPlace(state string) string {
	switch state {
	case "settled":
		return colourGood
	case "refused", "unanswered":
		return colourBad
	case "waiting", "absent":
		return colourWait
	}
	return ""
}

func (r *transactionReport) write(command *cobra.Command) error {
	rows := table{colour: func(column int, cell string) string {
		if column == 1 {
			return colourOfState(cell)
		}
		return ""
	}}
	rows.add("transaction", r.ID)
	rows.add("state", r.place())
	if r.BlockHash != "" {
		rows.add("block", r.BlockHash)
		rows.add("time", moment(r.BlockTimeMS))
	}
	if len(r.SignedBy) > 0 {
		rows.add("signed by", strings.Join(r.SignedBy, ", "))
	}
	if r.LastValid > 0 {
		rows.add("valid to", fmt.Sprintf("block %d", r.LastValid))
	}
	if r.DeadlineMS > 0 {
		rows.add("deadline", moment(r.DeadlineMS))
	}
	if r.Verdict != nil {
		rows.add("verdict", fmt.Sprintf("shard %d says %s of %s", r.Verdict.Shard, r.Verdict.Says,
			r.Verdict.Transaction))
	}
	if r.Cancels != nil {
		text := fmt.Sprintf("%s at shard %d", r.Cancels.Transaction, r.Cancels.Shard)
		if r.Cancels.Place != nil {
			text += ", where it is " + sanitize(r.Cancels.Place.State, 0)
			if r.Proof != nil {
				text += " (this is not proven)"
			}
		}
		rows.add("cancels", text)
	}
	for _, name := range r.Registered {
		rows.add("registers", name)
	}
	if r.Change != nil {
		rows.add("members", r.Change.String())
	}
	if r.Policy != nil {
		rows.add("policy", policyWords(r.Policy))
	}
	if r.Asset != nil {
		rows.add("asset", assetChangeWords(r.Asset))
	}
	if h := r.Hold; h != nil {
		rows.add("holds", fmt.Sprintf("%s %s of %s for %v; %s may post it until %s", h.Amount,
			h.Asset, h.From, h.To, h.Poster, moment(uint64(h.Expires))))
	}
	if d := r.Details; d != nil {
		if d.Effective != 0 {
			rows.add("effective", moment(uint64(d.Effective)))
		}
		if d.Key != "" {
			rows.add("key", d.Key)
		}
		if d.Refundable != 0 {
			rows.add("refundable", "until "+moment(uint64(d.Refundable)))
		}
		if d.Refund != nil {
			rows.add("refunds", fmt.Sprintf("%s of %s", d.Refund.Entry, d.Refund.Organisation))
		}
	}
	if r.HoldEnd != nil {
		what := "voids"
		if len(r.Postings) > 0 {
			what = "posts"
		}
		rows.add(what, fmt.Sprintf("hold %s of %s", r.HoldEnd.Hold, r.HoldEnd.From))
	}
	r.scheduleRows(&rows)
	if r.Account != nil {
		rows.add("account", fmt.Sprintf("change %d of the terms of %s", r.Account.Number,
			r.Account.Account))
		accountTermsRows(&rows, &r.Account.AccountTerms,
			func(amount ledger.Amount, _ ledger.AssetName) string { return amount.String() })
	}
	if r.Charter != nil {
		rows.add("operators", r.Charter.String())
	}
	for _, path := range r.Accounts {
		rows.add("opens", path)
	}
	for _, record := range r.Records {
		rows.add("sets", fmt.Sprintf("%s (%s)", record.Key, plural(record.Bytes, "byte")))
	}
	if r.Note != nil {
		rows.add("note", sanitize(fmt.Sprintf("%s", r.Note), 200))
	}
	if r.Proof != nil {
		rows.add("proof", r.Proof.text())
	}
	out := command.OutOrStdout()
	if err := rows.write(out); err != nil {
		return err
	}
	if len(r.Places) > 0 {
		if err := r.writePlaces(out); err != nil {
			return err
		}
	}
	if len(r.Postings) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	postings := table{header: []string{"ACCOUNT", "AMOUNT", "ASSET"},
		right: []bool{false, true, false}}
	for _, posting := range r.Postings {
		postings.add(posting.Account, posting.shown(), posting.Asset)
	}
	return postings.write(out)
}
