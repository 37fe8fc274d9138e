package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// draft is a transaction as users write it in a file.
type draft struct {
	Signer        string              `json:"signer"`
	LastValid     uint64              `json:"last_valid"`
	Deadline      string              `json:"deadline"`
	Organisations []draftOrganisation `json:"organisations"`
	Accounts      []draftAccount      `json:"accounts"`
	Postings      []draftPosting      `json:"postings"`
	Records       []draftRecord       `json:"records"`
	Cancellation  *draftCancellation  `json:"cancellation"`
	Note          json.RawMessage     `json:"note"`

	EffectiveDate  string `json:"effective_date"`
	IdempotencyKey string `json:"idempotency_key"`
	Refundable     string `json:"refundable"`
}

// details returns what the file says of the entry beyond its postings.
func (d *draft) details() detailOptions {
	return detailOptions{d.EffectiveDate, d.IdempotencyKey, d.Refundable}
}

type draftCancellation struct {
	Transaction string `json:"transaction"`
	Shard       uint32 `json:"shard"`
}

type draftOrganisation struct {
	Name       string   `json:"name"`
	PublicKeys []string `json:"public_keys"`
	Shard      *uint32  `json:"shard"`
}

type draftAccount struct {
	Account string `json:"account"`
	Issuer  bool   `json:"issuer"`
	Alias   string `json:"alias"`
}

type draftPosting struct {
	Account string      `json:"account"`
	Amount  draftAmount `json:"amount"`
	Asset   string      `json:"asset"`
}

// draftAmount is an amount in a file: an integer of the smallest unit, as text or as number, or
// text with a point and all decimals of a registered asset.
type draftAmount struct {
	ledger.Amount
	decimal string // the text with a point, until it is resolved
}

// UnmarshalJSON reads an amount. What has a point is resolved later, since a node knows the asset.
func (a *draftAmount) UnmarshalJSON(data []byte) error {
	if text := ""; bytes.ContainsRune(data, '.') && json.Unmarshal(data, &text) == nil {
		a.decimal = text
		return nil
	}
	if err := a.Amount.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("%w: write a number with decimals as text, \"12.50\"", err)
	}
	return nil
}

// resolve reads the amounts with a point, with the decimals that a node says the assets have.
func (o *txPostOptions) resolve(command *cobra.Command, parts *draft) error {
	for i := range parts.Postings {
		posting := &parts.Postings[i]
		text := posting.Amount.decimal
		if text == "" {
			continue
		}
		amount, err := o.amount(command, text, posting.Asset)
		if err != nil {
			return fmt.Errorf("posting %d: %w", i+1, inFile(err))
		}
		posting.Amount = draftAmount{Amount: amount}
	}
	return nil
}

type draftRecord struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Bytes []byte `json:"value_base64"`
}

// txPostOptions are the flags of ledgerd tx post.
type txPostOptions struct {
	post      postOptions
	postings  []string
	asked     *decimals // the decimals of assets, once a node was asked
	note      string
	signer    string
	lastValid uint64
	deadline  string
	details   detailOptions
	out       string
}

// newTxPostCommand returns the `ledgerd tx post` command.
func newTxPostCommand() *cobra.Command {
	var options txPostOptions
	command := &cobra.Command{
		Use:   "post [FILE]",
		Short: "Submit a transaction of any form, signed by all organisations that give something",
		Long: `Submit a transaction of any form, signed by all organisations that give something.

Its parts come from a JSON file (- is the standard input), from --posting, or
from both. The file needs nothing but "postings" or another part:

  {"postings":      [{"account": "acme:cash", "amount": "-25", "asset": "EUR"},
                     {"account": "globex:cash", "amount": 25, "asset": "EUR"}],
   "records":       [{"key": "acme:invoice-7", "value": "paid"}],
   "accounts":      [{"account": "acme:vault", "issuer": false}],
   "organisations": [{"name": "acme", "public_keys": ["4f…"]}],
   "note": "anything", "signer": "acme", "last_valid": 1200, "deadline": "90m",
   "effective_date": "2026-01-31", "idempotency_key": "invoice-7", "refundable": "720h"}

or to cancel a transaction at a shard, as ledgerd tx cancel does:

  {"cancellation": {"transaction": "6a0c9f…", "shard": 2},
   "signer": "acme", "deadline": "2026-01-31T12:00:00Z"}

Amounts in the file are exact integers in the smallest unit of the asset, or text
with a point and all decimals of the asset (ledgerd asset): "-12.50". Those of
--posting always have all of its decimals: -12.50:EUR.

Postings add up to zero for each asset. Every organisation that gives something
has to sign; the keyring needs the key of each. The first of them is the signer,
whose number makes the transaction unique, unless --signer names another.

A transaction that crosses shards has a deadline. If one of its shards has not
executed it by then, it takes effect nowhere, and what it set aside is free again.
The deadline may be seven days ahead. While one of its shards is down or full, the
nodes refuse it, and say which. With --queue it waits for that shard.

With --out the signed transaction goes into a file and to no node; ledgerd tx
submit sends it later, as often as you like: it takes effect once. (The command
still asks a node for the ledger's name and a number.) If keys of other
organisations are missing, the file says so, and tx submit --sign adds them
elsewhere.`,
		Example: `  # An exchange between two organisations, all or nothing
  ledgerd tx post --posting acme:eur=-12.50:EUR --posting globex:eur=12.50:EUR \
                  --posting globex:usd=-108:USD --posting acme:usd=108:USD

  echo '{"postings":[{"account":"acme:cash","amount":-5},{"account":"acme:vault","amount":5}]}' | \
      ledgerd tx post -

  # Sign now, send later
  ledgerd tx post --posting acme:cash=-5 --posting acme:vault=5 --out payment.tx
  ledgerd tx submit payment.tx`,
		Args: cobra.MaximumNArgs(1),
		RunE: options.run,
	}
	options.post.bind(command)
	bindDryRun(command, &options.post.dry)
	options.post.remote.bindQueue(command)
	flags := command.Flags()
	flags.StringArrayVar(&options.postings, "posting",
		nil, "a posting ACCOUNT=AMOUNT or ACCOUNT=AMOUNT:ASSET; repeat it")
	flags.StringVar(&options.note, "note", "", "a note, kept in the transaction")
	flags.StringVar(&options.signer, "signer", "",
		"organisation that submits (default the first that has to sign)")
	flags.Uint64Var(&options.lastValid, "last-valid", 0,
		"height of the last block that may take the transaction; 0 means that it does not expire")
	bindDeadline(command, &options.deadline)
	options.details.bind(command)
	flags.StringVar(&options.out, "out", "",
		"write the signed transaction to this file instead of submitting it")
	completeFlag(command, "signer", keyCompletion(&options.post.keys))
	return command
}

func (o *txPostOptions) run(command *cobra.Command, arguments []string) error {
	var parts draft
	if len(arguments) == 1 {
		content, err := readFile(command, arguments[0])
		if err != nil {
			return err
		}
		if parts, err = parseDraft(content); err != nil {
			return fmt.Errorf("%s: %w", arguments[0], err)
		}
		if err := o.resolve(command, &parts); err != nil {
			return fmt.Errorf("%s: %w", arguments[0], err)
		}
	}
	return o.submit(command, parts)
}

// submit makes the transaction of the parts and of the flags, signs it, and submits it or writes it
// to a file.
func (o *txPostOptions) submit(command *cobra.Command, parts draft) error {
	for _, text := range o.postings {
		posting, sum, err := parsePosting(text)
		if err != nil {
			return err
		}
		amount, err := o.amount(command, sum, posting.Asset)
		if err != nil {
			return usagef("--posting %q: %w", text, err)
		}
		posting.Amount = draftAmount{Amount: amount}
		parts.Postings = append(parts.Postings, posting)
	}
	transaction, err := parts.transaction()
	if err != nil {
		return err
	}
	if o.note != "" {
		transaction.Note = []byte(o.note)
	}
	if o.signer != "" {
		if transaction.Signer, err = parseOrganisation(o.signer); err != nil {
			return err
		}
	}
	if o.lastValid != 0 {
		transaction.LastValid = ledger.Height(o.lastValid)
	}
	if o.deadline != "" {
		parts.Deadline = o.deadline
	}
	if transaction.Deadline, err = parseDeadline(parts.Deadline, time.Now()); err != nil {
		return err
	}
	said := o.details.over(parts.details())
	if err := said.details(&transaction, time.Now()); err != nil {
		return err
	}
	signers := signersOf(&transaction)
	if len(signers) == 0 {
		return usagef("the transaction says nothing: give a FILE or --posting, for example " +
			"--posting acme:cash=-5 --posting acme:vault=5")
	}
	if o.out != "" {
		return o.sign(command, signers, transaction)
	}
	return o.post.post(command, signers, transaction)
}

// inFile returns an error about what a file says: the command line is not what is wrong.
func inFile(err error) error {
	if misused := (*usageError)(nil); errors.As(err, &misused) {
		return misused.err
	}
	return err
}

// parseDraft parses a transaction in JSON. It refuses unknown fields.
func parseDraft(content []byte) (draft, error) {
	var parts draft
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parts); err != nil {
		return draft{}, fmt.Errorf("not a transaction in JSON: %w: see `ledgerd tx post --help` "+
			"for its form", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return draft{}, errors.New("there is more than one transaction: a file of many goes to " +
			"`ledgerd tx import`")
	}
	return parts, nil
}

// parsePosting parses ACCOUNT=AMOUNT or ACCOUNT=AMOUNT:ASSET. A path may contain equal signs, an
// amount may not.
func parsePosting(text string) (posting draftPosting, amount string, err error) {
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return draftPosting{}, "", usagef("--posting %q: write ACCOUNT=AMOUNT or "+
			"ACCOUNT=AMOUNT:ASSET, for example acme:cash=-5", text)
	}
	sum, asset, _ := strings.Cut(text[at+1:], ":")
	return draftPosting{Account: text[:at], Asset: asset}, sum, nil
}

// amount parses the amount of a posting, written with the decimals of the asset.
func (o *txPostOptions) amount(command *cobra.Command, text, asset string) (ledger.Amount, error) {
	name, err := parseAsset(asset)
	if err != nil {
		return ledger.Amount{}, err
	}
	if name == ledger.DefaultAsset {
		return ledger.ParseDecimal(text, 0)
	}
	if count, known := o.asked.count(name); known {
		return parseFull(text, count, string(name))
	}
	nodes, ctx, done, err := o.post.remote.connect(command.Context())
	if err != nil {
		return ledger.Amount{}, err
	}
	defer done()
	if o.asked == nil {
		o.asked = newDecimals(nodes)
	}
	o.asked.nodes = nodes
	return o.asked.parse(ctx, text, name)
}

// transaction makes a transaction from the parts.
func (d *draft) transaction() (ledger.Transaction, error) {
	made := ledger.Transaction{LastValid: ledger.Height(d.LastValid),
		Signer: ledger.OrganisationName(d.Signer)}
	for _, organisation := range d.Organisations {
		registration := ledger.Registration{Name: ledger.OrganisationName(organisation.Name)}
		if organisation.Shard != nil {
			registration.Shard, registration.Pinned = ledger.ShardID(*organisation.Shard), true
		}
		for _, text := range organisation.PublicKeys {
			key, err := ledger.ParsePublicKey(text)
			if err != nil {
				return made, fmt.Errorf("organisation %s: %w", organisation.Name, err)
			}
			registration.Keys = append(registration.Keys, key)
		}
		made.Registrations = append(made.Registrations, registration)
	}
	for _, account := range d.Accounts {
		path, err := parseAccount(account.Account)
		if err != nil {
			return made, err
		}
		made.Openings = append(made.Openings, ledger.Opening{Account: path, Issuer: account.Issuer,
			Alias: account.Alias})
	}
	for _, posting := range d.Postings {
		path, err := parseAccount(posting.Account)
		if err != nil {
			return made, err
		}
		asset, err := parseAsset(posting.Asset)
		if err != nil {
			return made, err
		}
		made.Postings = append(made.Postings, ledger.Posting{Account: path, Asset: asset,
			Amount: posting.Amount.Amount})
	}
	for _, record := range d.Records {
		key, err := parseRecordKey(record.Key)
		if err != nil {
			return made, err
		}
		value := record.Bytes
		if value == nil {
			value = []byte(record.Value)
		}
		made.Records = append(made.Records, ledger.Record{Key: key, Value: value})
	}
	if d.Cancellation != nil {
		id, err := ledger.ParseHash(d.Cancellation.Transaction)
		if err != nil {
			return made, usagef("the transaction to cancel: %w", err)
		}
		made.Cancellation = &ledger.Cancellation{Transaction: id,
			Shard: ledger.ShardID(d.Cancellation.Shard)}
	}
	if note := ""; json.Unmarshal(d.Note, &note) == nil {
		made.Note = []byte(note)
	} else {
		made.Note = d.Note
	}
	return made, nil
}

// signedReport is a signed transaction as --json prints it.
type signedReport struct {
	ID       string   `json:"id"`
	File     string   `json:"file"`
	SignedBy []string `json:"signed_by"`
	Missing  []string `json:"missing_signatures"`
}

// nonceStreams limits the nonce streams that signing ahead draws from. A ledger remembers each
// stream for ever.
const nonceStreams = 1 << 16

// sign signs the transaction with the keys in the keyring, and writes it to a file.
func (o *txPostOptions) sign(command *cobra.Command, signers []ledger.OrganisationName,
	transaction ledger.Transaction) error {
	nodes, ctx, done, err := o.post.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	transaction.Signer = signers[0]
	if err := completeTransaction(ctx, nodes, &transaction); err != nil {
		return err
	}
	ring, err := o.post.keys.open()
	if err != nil {
		return err
	}
	bundle, err := client.Sign(ctx, nil, transaction)
	if err != nil {
		return err
	}
	report, err := signWithKeyring(command.Context(), bundle, ring, signers)
	if err != nil {
		return err
	}
	if len(report.SignedBy) == 0 {
		_, err := ring.Load(signers[0])
		return err
	}
	report.File = o.out
	return report.write(command, o.post.json, bundle)
}

// completeTransaction sets a transaction's ledger, an unused nonce and, if it needs one, a
// deadline.
func completeTransaction(ctx context.Context, nodes *client.Client,
	transaction *ledger.Transaction) error {
	genesis, err := nodes.Genesis(ctx)
	if err != nil {
		return err
	}
	stream := 1 + rand.Uint64N(nonceStreams)
	next, err := nodes.NextSequence(ctx, transaction.Signer, stream)
	if err != nil {
		return err
	}
	transaction.Ledger = genesis
	transaction.Nonce = ledger.Nonce{Stream: stream,
		Sequence: next + rand.Uint64N(ledger.WindowSize/2)}
	if err := nodes.SetDeadline(ctx, transaction); err != nil {
		return err
	}
	return transaction.Validate()
}

// signWithKeyring adds the signatures of all signers whose keys are in the keyring, unless the same
// key has signed. An organisation may need the signatures of several keys.
func signWithKeyring(ctx context.Context, bundle *ledger.Bundle, ring *client.Keyring,
	signers []ledger.OrganisationName) (signedReport, error) {
	report := signedReport{ID: bundle.ID(0).String(), SignedBy: []string{}, Missing: []string{}}
	before := bundle.Signatures()
	signed := func(organisation ledger.OrganisationName) bool {
		return slices.ContainsFunc(before, func(s ledger.Signature) bool {
			return s.Organisation == organisation
		})
	}
	for _, organisation := range signers {
		file, err := ring.Inspect(organisation)
		switch {
		case errors.Is(err, client.ErrNoKey) && signed(organisation),
			err == nil && ledger.HasSigned(before, organisation, []ledger.PublicKey{file.Public}):
			report.SignedBy = append(report.SignedBy, string(organisation))
			continue
		case errors.Is(err, client.ErrNoKey):
			report.Missing = append(report.Missing, string(organisation))
			continue
		case err != nil:
			return report, err
		}
		key, err := ring.Load(organisation)
		if err == nil {
			err = key.SignBundle(ctx, bundle)
		}
		if err != nil {
			return report, err
		}
		report.SignedBy = append(report.SignedBy, string(organisation))
	}
	return report, nil
}

// write writes the bundle to the report's file and prints the report.
func (r *signedReport) write(command *cobra.Command, asJSON bool, bundle *ledger.Bundle) error {
	if err := writeBundle(r.File, bundle); err != nil {
		return err
	}
	out := command.OutOrStdout()
	if asJSON {
		return writeJSON(out, r)
	}
	rows := table{}
	rows.add("transaction", r.ID)
	rows.add("file", r.File)
	rows.add("signed by", strings.Join(r.SignedBy, ", "))
	next := "submit it with `ledgerd tx submit " + r.File + "`"
	if len(r.Missing) > 0 {
		rows.add("missing", strings.Join(r.Missing, ", "))
		next = "sign it where the missing key is: `ledgerd tx submit " + r.File + " --sign`"
	}
	if err := rows.write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, next)
	return err
}

// writeWhole makes a file appear completely or not at all.
func writeWhole(path string, content []byte) error {
	draft, err := os.CreateTemp(filepath.Dir(path), ".ledgerd-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = draft.Write(content)
	if err = errors.Join(err, draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(draft.Name()))
	}
	return nil
}
