package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/home"
)

// identitiesFile is the file of identities that ledgerd access writes if the configuration names
// none.
const identitiesFile = "identities.json"

// newAccessCommand returns the `ledgerd access` command.
func newAccessCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "access",
		Short: "Say who may call a node, and what each may do",
		Long: `Say who may call a node, and what each may do.

A node with access = "identified" under [api] serves those in the file that
identities names. A caller has one of these roles:

  organisation  reads its own accounts, records and transactions, and submits
                what it signs
  auditor       reads everything, and submits nothing
  operator      reads and submits everything

A running node takes over a change of the file by itself.`,
		Example: `  ledgerd access add acme-backend --home ledger --role organisation --organisation acme
  ledgerd access list --home ledger
  ledgerd access remove acme-backend --home ledger`,
	}, newAccessAddCommand(), newAccessListCommand(), newAccessRemoveCommand())
}

// accessReport is what ledgerd access add prints with --json.
type accessReport struct {
	doors.Identity
	// Token is the new token, if one was made.
	Token string `json:"token,omitempty"`
	File  string `json:"file"`
}

func newAccessAddCommand() *cobra.Command {
	var dir, role string
	var life time.Duration
	var asJSON bool
	var identity doors.Identity
	command := &cobra.Command{
		Use:   "add NAME --home DIR --role ROLE",
		Short: "Add a caller",
		Long: `Add a caller to those that a node serves.

Without --certificate and --issuer, the command makes a token and prints it. The
file keeps its hash only: there is no way to show the token again.`,
		Example: `  ledgerd access add acme-backend --home ledger --role organisation --organisation acme
  ledgerd access add audit --home ledger --role auditor --certificate "CN=audit,O=Example"
  ledgerd access add anna --home ledger --role operator --issuer https://login.example \
                     --subject 00u1`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			path, file, err := readAccess(dir)
			if err != nil {
				return err
			}
			identity.Name, identity.Role = arguments[0], doors.Role(role)
			report := accessReport{File: path}
			if identity.Certificate == "" && identity.Issuer == "" {
				report.Token, identity.TokenSHA256 = doors.NewToken()
			}
			if life > 0 {
				expires := time.Now().Add(life).UTC().Truncate(time.Second)
				identity.Expires = &expires
			}
			report.Identity = identity
			file.Identities = append(file.Identities, identity)
			if err := writeAccess(path, file); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			text := fmt.Sprintf("%s may call as %s: %s\n", identity.Name, identity.Role, path)
			if report.Token != "" {
				text = fmt.Sprintf("%s\ntoken  %s\n", text, report.Token)
			}
			_, err = fmt.Fprint(command.OutOrStdout(), text)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVar(&dir, "home", "", "the node's home folder (required)")
	flags.StringVar(&role, "role", "", "organisation, auditor or operator (required)")
	completeFlag(command, "role", cobra.FixedCompletions([]string{"organisation", "auditor",
		"operator"}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&identity.Organisation, "organisation", "", "the organisation of that role")
	flags.StringVar(&identity.Certificate, "certificate", "",
		"subject of the caller's certificate, as \"CN=books,O=Acme\"")
	flags.StringVar(&identity.Issuer, "issuer", "",
		"issuer of the caller's JWT, one of the issuers in the file")
	flags.StringVar(&identity.Subject, "subject", "", "subject of the caller's JWT")
	flags.DurationVar(&life, "expires-after", 0, "end the identity after this time; 0 means never")
	command.MarkFlagsRequiredTogether("issuer", "subject")
	command.MarkFlagsMutuallyExclusive("issuer", "certificate")
	addJSONFlag(command, &asJSON)
	return command
}

func newAccessListCommand() *cobra.Command {
	var dir string
	var asJSON bool
	command := &cobra.Command{
		Use:   "list --home DIR",
		Short: "Show the callers that a node serves",
		Long: `Show the callers that a node serves, their roles and how the node recognises
them. Tokens are not shown: the node keeps their hashes only.`,
		Example: `  ledgerd access list --home ledger`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, file, err := readAccess(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), file)
			}
			for i := range file.Identities {
				known := &file.Identities[i]
				by := "a token"
				switch {
				case known.Certificate != "":
					by = "the certificate of " + known.Certificate
				case known.Issuer != "":
					by = "a JWT of " + known.Issuer + " for " + known.Subject
				}
				until := ""
				if known.Expires != nil {
					until = ", until " + known.Expires.Format(time.RFC3339)
				}
				if _, err := fmt.Fprintf(command.OutOrStdout(), "%s  %s %s  by %s%s\n",
					sanitize(known.Name, 0), known.Role, sanitize(known.Organisation, 0),
					sanitize(by, 0), until); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringVar(&dir, "home", "", "the node's home folder (required)")
	addJSONFlag(command, &asJSON)
	return command
}

func newAccessRemoveCommand() *cobra.Command {
	var dir string
	var asJSON bool
	command := &cobra.Command{
		Use:     "remove NAME --home DIR",
		Short:   "Remove a caller",
		Long:    `Remove a caller from those that a node serves. It is refused from then on.`,
		Example: `  ledgerd access remove acme-backend --home ledger`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			path, file, err := readAccess(dir)
			if err != nil {
				return err
			}
			before := len(file.Identities)
			file.Identities = slices.DeleteFunc(file.Identities, func(known doors.Identity) bool {
				return known.Name == arguments[0]
			})
			if len(file.Identities) == before {
				return fmt.Errorf("%s has no identity %q: see `ledgerd access list --home %s`",
					path, arguments[0], dir)
			}
			if err := writeAccess(path, file); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), file)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s may not call any more: %s\n",
				sanitize(arguments[0], 0), path)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringVar(&dir, "home", "", "the node's home folder (required)")
	addJSONFlag(command, &asJSON)
	return command
}

// readAccess reads the file of identities of a home. A file that is missing has none.
func readAccess(dir string) (path string, file *doors.Identities, err error) {
	if dir == "" {
		return "", nil, usagef("--home is missing: name the node's home folder, for example " +
			"--home ledger")
	}
	h, err := home.LoadJoining(dir)
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(h.Dir, identitiesFile)
	if configured := h.File(h.Config.API.Identities); configured != "" {
		path = configured
	}
	file, err = doors.ReadIdentities(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, &doors.Identities{Identities: []doors.Identity{}}, nil
	}
	return path, file, err
}

// writeAccess writes a file of identities, if it is valid.
func writeAccess(path string, file *doors.Identities) error {
	if err := file.Check(filepath.Dir(path)); err != nil {
		return asUsage(err)
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return home.WriteFile(path, append(text, '\n'), 0o600)
}
