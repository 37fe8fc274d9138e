package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// newTxCommand returns the `ledgerd tx` command.
func newTxCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "tx",
		Short: "Submit transactions, and show their outcome",
		Long: `Submit transactions, and show their outcome.

A transaction is a journal entry: postings that add up to zero for each asset,
and records, accounts and organisations that it makes. All of it happens or
nothing. Each organisation that gives something signs, with its key in the
keyring.

The state of a transaction is its outcome so far:

  pending   checked by a node, waiting for its place in the order
  ordered   its place in the chain is decided and it is executed
  stored    on the disk of the node that answers
  durable   on the disks of a majority of the nodes
  failed    in a block, with the reason; it changed nothing
  expired   in no block, and it never will be`,
		Example: `  ledgerd tx transfer acme:mint acme:cash 100
  ledgerd tx import entries.jsonl.gz --issuer coinbase
  ledgerd tx status 5d0c6a…`,
	}, newTxTransferCommand(), newTxPostCommand(), newTxPutCommand(), newTxGetCommand(),
		newTxSubmitCommand(), newTxStatusCommand(), newTxCancelCommand(), newTxImportCommand(),
		newTxTemplateCommand(), newTxRefundCommand(), newTxReverseCommand())
}

// statusReport is a transaction's state as --json prints it.
type statusReport struct {
	ID         string  `json:"id"`
	State      string  `json:"state"`
	Height     uint64  `json:"height,omitempty"`
	Index      *uint32 `json:"index,omitempty"`
	ReasonCode string  `json:"reason_code,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	// These are set in a ledger of several shards.
	Shard         uint32   `json:"shard,omitempty"` // the shard that the height is of
	SettledHeight uint64   `json:"settled_height,omitempty"`
	Destinations  []uint32 `json:"destinations,omitempty"`
	WaitsFor      []uint32 `json:"waits_for,omitempty"`
	// Everywhere is set if --wait durable-everywhere was reached in two or more shards.
	Everywhere bool `json:"everywhere,omitempty"`
	// KeyHolder is the entry that has the idempotency key, if that is why the transaction failed.
	// KeyWaits is set while that one waits for other shards: they may refuse it.
	KeyHolder string `json:"key_holder,omitempty"`
	KeyWaits  bool   `json:"key_waits,omitempty"`
}

// stateName returns the name of a state in lower case.
func stateName(state ledgerdv1.TransactionState) string {
	if state == ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED {
		return "unknown"
	}
	return strings.ToLower(strings.TrimPrefix(state.String(), "TRANSACTION_STATE_"))
}

func reportStatus(status *ledgerdv1.TransactionStatus) statusReport {
	report := statusReport{
		ID: status.GetIdHex(), State: stateName(status.GetState()), Height: status.GetHeight(),
		ReasonCode: status.GetReasonCode(), Reason: status.GetReason(),
		Shard: status.GetShard(), SettledHeight: status.GetSettledHeight(),
		Destinations: status.GetDestinations(), WaitsFor: status.GetWaitsFor(),
		Everywhere: status.GetEverywhere(),
	}
	if report.Height > 0 {
		index := status.GetIndex()
		report.Index = &index
	}
	return report
}

// place describes a state and the place of the transaction.
func (r statusReport) place() string {
	text := r.State
	if r.Height > 0 {
		text = fmt.Sprintf("%s in block %d", r.State, r.Height)
	}
	if r.Height > 0 && (r.Shard > 0 || len(r.Destinations) > 0) {
		text += fmt.Sprintf(" of shard %d", r.Shard)
	}
	if r.Everywhere {
		text += ", and in all shards that it concerns"
	}
	if len(r.WaitsFor) > 0 {
		text += ", waiting for " + client.ShardNames(r.WaitsFor)
	}
	return text
}

// failure returns the error of a transaction that failed or expired, and nil for others.
func (r statusReport) failure() error {
	switch r.State {
	case "failed":
		advice := remedy(r.ReasonCode)
		switch {
		case r.KeyWaits:
			advice = ": " + r.KeyHolder + " has it, and waits for other shards: see what becomes " +
				"of it"
		case r.KeyHolder != "":
			advice = ": it is there already, as " + r.KeyHolder
		}
		return fmt.Errorf("the transaction failed (%s) and changed nothing: %s%s", r.ReasonCode,
			r.Reason, advice)
	case "expired":
		return fmt.Errorf("the transaction expired and changed nothing: %s: make it again",
			r.Reason)
	}
	return nil
}

// remedies advise what to do about a failure, by the code of its reason.
var remedies = map[string]string{
	"unknown_account":      ": open it with `ledgerd account open`",
	"unknown_organisation": ": register it with `ledgerd org add`",
	"insufficient_funds":   ": see what is there with `ledgerd account show`",
	"hold_time":            ": the time of blocks counts, see `ledgerd block head`",
	"key_taken":            ": it is there already, under another id",
	"unknown_hold":         ": see what is open with `ledgerd hold list`",
	"unknown_schedule":     ": see what is open with `ledgerd schedule list`",
	"too_many_waiting":     ": see with `ledgerd shards` which one does not answer",
}

func remedy(code string) string { return remedies[code] }

// colourOfState returns the colour of a transaction's state.
func colourOfState(state string) string {
	switch word, _, _ := strings.Cut(state, " "); word {
	case "durable", "stored", "ordered":
		return colourGood
	case "failed", "expired":
		return colourBad
	case "pending":
		return colourWait
	}
	return ""
}

// writeStatus prints a transaction's state and returns its failure.
func writeStatus(out io.Writer, asJSON bool, report statusReport) error {
	if asJSON {
		return errors.Join(writeJSON(out, report), report.failure())
	}
	rows := table{colour: func(column int, cell string) string {
		if column == 1 {
			return colourOfState(cell)
		}
		return ""
	}}
	rows.add("transaction", report.ID)
	rows.add("state", report.place())
	return errors.Join(rows.write(out), report.failure())
}

// postOptions are the flags of the commands that make a transaction.
type postOptions struct {
	remote remoteOptions
	keys   keyringOptions
	wait   string
	json   bool
	dry    bool // see bindDryRun
}

func (o *postOptions) bind(command *cobra.Command) {
	o.remote.bind(command, false)
	o.keys.bind(command)
	bindWait(command, &o.wait)
	addJSONFlag(command, &o.json)
}

// post signs a transaction with the keys of the signers, submits it and prints its outcome.
func (o *postOptions) post(command *cobra.Command, signers []ledger.OrganisationName,
	transaction ledger.Transaction) error {
	level, err := parseLevel(o.wait)
	if err != nil {
		return err
	}
	keys, err := o.load(signers)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	return o.postWith(ctx, command, nodes, keys, transaction, level)
}

func (o *postOptions) postWith(ctx context.Context, command *cobra.Command, nodes *client.Client,
	keys []client.Key, transaction ledger.Transaction, level ledgerdv1.Level) error {
	if o.dry {
		return o.dryRun(ctx, command, nodes, keys, transaction)
	}
	status, err := nodes.Post(ctx, keys, transaction, level)
	if err != nil && len(status.GetWaitsFor()) > 0 {
		return errors.Join(writeStatus(command.OutOrStdout(), o.json, reportStatus(status)), err)
	}
	if err != nil {
		return withWriters(err)
	}
	report := reportStatus(status)
	if d := transaction.Details; d != nil {
		report.nameKeyHolder(ctx, nodes, keys[0].Organisation, d.Key)
	}
	return writeStatus(command.OutOrStdout(), o.json, report)
}

// load reads the keys of organisations from the keyring.
func (o *postOptions) load(organisations []ledger.OrganisationName) ([]client.Key, error) {
	ring, err := o.keys.open()
	if err != nil {
		return nil, err
	}
	var keys []client.Key
	for _, organisation := range organisations {
		key, err := ring.Load(organisation)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// signersOf returns the organisations that have to sign a transaction. The first one provides the
// nonce.
func signersOf(transaction *ledger.Transaction) []ledger.OrganisationName {
	var signers []ledger.OrganisationName
	need := func(organisation ledger.OrganisationName) {
		if organisation != "" && !slices.Contains(signers, organisation) {
			signers = append(signers, organisation)
		}
	}
	need(transaction.Signer)
	for _, posting := range transaction.Postings {
		if posting.Amount.Sign() < 0 {
			need(posting.Account.Organisation())
		}
	}
	for _, opening := range transaction.Openings {
		need(opening.Account.Organisation())
	}
	for _, record := range transaction.Records {
		need(record.Key.Organisation())
	}
	for _, registration := range transaction.Registrations {
		need(registration.Name)
	}
	return signers
}

// postingReport is a posting as --json prints it.
type postingReport struct {
	Account string `json:"account"`
	Amount  string `json:"amount"`
	Asset   string `json:"asset"`
	// Decimal is the amount with the decimals of the asset, if it has any and a node said so.
	Decimal string `json:"amount_decimal,omitempty"`
}

// shown returns the amount as people read it.
func (r *postingReport) shown() string {
	if r.Decimal != "" {
		return r.Decimal
	}
	return r.Amount
}

// decimalPostings adds the decimal forms of amounts, as a node knows the assets.
func decimalPostings(ctx context.Context, known *decimals, postings []postingReport) {
	for i := range postings {
		p := &postings[i]
		if count, err := known.of(ctx, ledger.AssetName(p.Asset)); err == nil {
			p.Decimal = decimalForm(p.Amount, count)
		}
	}
}

func reportPostings(postings []*ledgerdv1.Posting) []postingReport {
	reports := []postingReport{}
	for _, posting := range postings {
		reports = append(reports, postingReport{Account: posting.GetAccount(),
			Amount: posting.GetAmount(), Asset: posting.GetAsset()})
	}
	return reports
}

// noteReport returns a note as JSON if it is a JSON object or list, and as text otherwise.
func noteReport(note string) any {
	if note == "" {
		return nil
	}
	if (note[0] == '{' || note[0] == '[') && json.Valid([]byte(note)) {
		return json.RawMessage(note)
	}
	return note
}
