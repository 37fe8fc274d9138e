package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

// newTxPutCommand returns the `ledgerd tx put` command.
func newTxPutCommand() *cobra.Command {
	var options postOptions
	var details detailOptions
	var file string
	command := &cobra.Command{
		Use:   "put KEY [VALUE]",
		Short: "Set the value of a record",
		Long: `Set the value of a record.

A record is a key with a value, which may be anything: a document's hash, a
price, a state. Its key is written ORGANISATION:NAME, and the organisation signs
each change of it. The value is the text after the key, or with --file the content
of a file. Read it with ledgerd tx get.

--effective-date says since when the value counts, if not since now, and
--idempotency-key keeps a script that runs twice from setting it twice.`,
		Example: `  ledgerd tx put acme:rates/eur 1.0832
  ledgerd tx put acme:contract-17 --file contract.pdf.sha256
  ledgerd tx put acme:rates/eur 1.0832 --effective-date 2026-01-31 --idempotency-key eur-0131`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, arguments []string) error {
			key, err := parseRecordKey(arguments[0])
			if err != nil {
				return err
			}
			if (len(arguments) == 2) == (file != "") {
				return usagef("name the value once: as the second argument, or with --file")
			}
			record := ledger.Record{Key: key}
			if file != "" {
				if record.Value, err = readFile(command, file); err != nil {
					return err
				}
			} else {
				record.Value = []byte(arguments[1])
			}
			transaction := ledger.Transaction{Records: []ledger.Record{record}}
			if err := details.details(&transaction, time.Now()); err != nil {
				return err
			}
			return options.post(command, signersOf(&transaction), transaction)
		},
	}
	details.bindDate(command)
	options.bind(command)
	bindDryRun(command, &options.dry)
	command.Flags().StringVar(&file, "file", "",
		"take the value from this file; - means the standard input")
	return command
}

// recordReport is a record as --json prints it.
type recordReport struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`        // if it is valid UTF-8
	Base64 string `json:"value_base64,omitempty"` // otherwise
	Height uint64 `json:"height"`
}

// newTxGetCommand returns the `ledgerd tx get` command.
func newTxGetCommand() *cobra.Command {
	var remote remoteOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "get KEY",
		Short: "Show the value of a record",
		Long: `Show the value of a record, byte for byte, as ledgerd tx put set it last. With
--json, value holds a text, value_base64 any other value, and height the block
that set it.`,
		Example: `  ledgerd tx get acme:rates/eur
  ledgerd tx get acme:rates/eur --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			key, err := parseRecordKey(arguments[0])
			if err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			answer, err := nodes.Record(ctx, key)
			if err != nil {
				return err
			}
			value := answer.GetRecord().GetValue()
			if asJSON {
				report := recordReport{Key: string(key), Height: answer.GetHeight()}
				if utf8.Valid(value) {
					report.Value = string(value)
				} else {
					report.Base64 = base64.StdEncoding.EncodeToString(value)
				}
				return writeJSON(command.OutOrStdout(), report)
			}
			if isTerminal(command.OutOrStdout()) {
				_, err = fmt.Fprintln(command.OutOrStdout(), sanitize(string(value), 0))
				return err
			}
			_, err = command.OutOrStdout().Write(value)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	addJSONFlag(command, &asJSON)
	return command
}

func parseRecordKey(text string) (ledger.RecordKey, error) {
	key := ledger.RecordKey(text)
	if err := key.Validate(); err != nil {
		return "", usagef("record %q: %w: write its key as ORGANISATION:NAME, for example "+
			"acme:rates/eur", text, err)
	}
	return key, nil
}

// inputMax limits the files that commands read whole, in bytes.
const inputMax = 16 << 20

// readFile reads a whole file; - is the standard input.
func readFile(command *cobra.Command, path string) ([]byte, error) {
	source := command.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		source = file
	}
	content, err := io.ReadAll(io.LimitReader(source, inputMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(content) > inputMax {
		return nil, fmt.Errorf("%s has more than %d bytes, the most that a transaction may have",
			path, inputMax)
	}
	return content, nil
}
