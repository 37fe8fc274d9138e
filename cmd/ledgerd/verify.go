package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
)

// verifyReport is what ledgerd verify --json prints. Height and Hash are those of the head if the
// store is intact.
type verifyReport struct {
	OK           bool          `json:"ok"`
	Height       ledger.Height `json:"height"`
	Hash         *ledger.Hash  `json:"hash"`
	Transactions uint64        `json:"transactions"`
	// Certificates is the number of blocks with a certificate, CertifiedHeight the highest of them.
	Certificates    int            `json:"certificates"`
	CertifiedHeight ledger.Height  `json:"certified_height"`
	FirstBadBlock   *ledger.Height `json:"first_bad_block"`
	Reason          string         `json:"reason"`
}

// newVerifyCommand returns the `ledgerd verify` command.
func newVerifyCommand() *cobra.Command {
	var dirs []string
	var whole, asJSON bool
	var journalPath, proof, genesis string
	command := &cobra.Command{
		Use: "verify (--home DIR | --book DIR... | --journal FILE --genesis FILE | " +
			"--proof FILE --genesis FILE)",
		Short: "Check a node's whole store, the whole book, a journal or a proof, from the genesis",
		Long: `Check a node's whole store again, from the genesis: the hash of every block and
the chain that they make, every signature, every result by executing all
transactions once more, the balances and the indexes. It also checks every
certificate: that a majority of those who were members before the block signed
it. The blocks up to the last certificate are final.

The node must not be running. The exit status is 1 if anything is wrong; the
command then shows the first bad block. The keys of --json:

  ok               whether all is well
  height, hash     the head, if all is well
  transactions     number of transactions in all blocks
  certificates     number of blocks with a certificate
  certified_height the last block with a certificate; 0 if there is none
  first_bad_block  the height of the first block that is not right, or null
  reason           what is not right

With --book the command checks all shards of a book. Name the folder that has the
homes of its nodes, or name homes, at least one of each shard. It first checks
each store by itself. Then it takes the highest store of each shard and compares
the chains with each other: each entry and each verdict that a shard received has
to be the one in the chain that it came from, and the amounts of each asset in all
accounts of all shards have to add up to zero. A transaction that took effect in
one shard and still waits in another counts as if it had taken effect in both. A
store that is older than what other shards received from its shard is refused. The
keys of --json are then ok and reason as above, and

  shards           shard, home, height, hash, transactions, certificates and
                   certified_height of each shard's highest store
  accounts, assets number of accounts and of assets in all shards
  carried          entries from other shards that were compared
  verdicts         verdicts of other shards that were compared
  waiting          transactions that wait in a shard for others
  on_the_way       those of them that took effect in another shard already
  bad_shard        the shard whose chain is not right, or null
  first_bad_block  the height of its block that is not right, or null

With --journal the command checks a journal that ledgerd export --journal wrote in
the format jsonl, with nothing but the genesis: the hashes that chain the blocks,
the roots of each block over its transactions, results and bundles, the signatures
of all transactions, and the certificates by those who were members. It makes each
line again and compares all bytes, so no word in the file is believed. It says which
lines are wrong and why. Blocks after the last certificate follow from it, but nobody
vouches for them. A journal without any certificate is not well: anybody may have
made it up. FILE may be - for the standard input. The keys of --json are

  ok               whether all is well
  chain, shard     the hash of the chain's genesis, and its shard
  lines            lines that were read
  height, hash     the last block that is right
  transactions     number of transactions up to it
  certificates, certified_height as above
  problems         the first lines that are wrong: line, reason

With --proof the command checks the proof of a balance (ledgerd account show), of an
asset's supply (ledgerd asset show) or of a transaction (ledgerd tx status) in a FILE,
with nothing but the genesis.`,
		Example: `  ledgerd verify --home net/node-0
  ledgerd verify --book net
  ledgerd verify --book --home net/node-0 --home net/node-4
  ledgerd verify --journal book.jsonl --genesis genesis.json
  ledgerd verify --proof cash.proof --genesis genesis.json`,
		RunE: func(command *cobra.Command, folders []string) error {
			switch alone := journalPath != "" || proof != ""; {
			case proof != "" && genesis == "":
				return usagef("to check a proof, name the ledger's genesis with --genesis FILE: " +
					"each node has it in its home folder")
			case !alone && genesis != "":
				return usagef("--genesis is for --journal and --proof: a home has its genesis")
			case alone && len(folders) > 0:
				return usagef("unexpected argument %q: --journal and --proof name the file",
					folders[0])
			case journalPath != "":
				return verifyJournal(command, journalPath, genesis, asJSON)
			case proof != "":
				return verifyProofFile(command, proof, genesis, asJSON)
			}
			if whole {
				v := &bookVerifier{ctx: command.Context(), out: command.OutOrStdout(),
					errOut: command.ErrOrStderr(), asJSON: asJSON}
				return v.verifyBook(append(folders, dirs...))
			}
			h, err := theHome(folders, dirs)
			if err != nil {
				return err
			}
			if err := hasData(h); err != nil {
				return err
			}
			begun := time.Now()
			progress, end := verifyProgress(command.ErrOrStderr())
			head, err := store.Verify(command.Context(), h.Data(), h.Genesis, storeOptions(h),
				progress)
			end()
			damage := (*store.DamageError)(nil)
			switch {
			case errors.As(err, &damage):
				return tellDamage(command.OutOrStdout(), h, damage, asJSON)
			case err != nil:
				return explainStore(h, err)
			case asJSON:
				return writeJSONLine(command.OutOrStdout(),
					verifyReport{OK: true, Height: head.Height, Hash: &head.Hash,
						Transactions: head.Total, Certificates: head.Certificates,
						CertifiedHeight: head.Certified})
			}
			certified := "no block is certified"
			if head.Certified > 0 {
				certified = fmt.Sprintf("certified up to block %d", head.Certified)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(),
				"all is well: %d blocks, %d transactions, head %d %s, %s, checked in %.1f s\n",
				head.Height, head.Total, head.Height, head.Hash, certified,
				time.Since(begun).Seconds())
			return err
		},
	}
	command.Flags().StringArrayVar(&dirs, "home", nil, "the node's home folder; with --book, "+
		"several are allowed")
	command.Flags().BoolVar(&whole, "book", false, "check all shards of the book")
	command.Flags().StringVar(&journalPath, "journal", "", "check the journal in this `FILE`")
	command.Flags().StringVar(&proof, "proof", "", "check the proof in this `FILE`")
	command.Flags().StringVar(&genesis, "genesis", "", "from this genesis `FILE` on; goes with "+
		"--journal and --proof")
	command.MarkFlagsMutuallyExclusive("journal", "proof", "home")
	command.MarkFlagsMutuallyExclusive("journal", "proof", "book")
	addJSONFlag(command, &asJSON)
	return command
}

// theHome returns the one home that was named.
func theHome(folders, dirs []string) (*home.Home, error) {
	switch {
	case len(folders) > 0:
		return nil, usagef("unexpected argument %q: name the node's home with --home, or check "+
			"the whole book with --book", folders[0])
	case len(dirs) > 1:
		return nil, usagef("--home is given %d times: with --book several homes are checked",
			len(dirs))
	case len(dirs) == 0:
		return loadHome("")
	}
	return loadHome(dirs[0])
}

// hasData refuses the home of a node that never ran. Otherwise verify would make an empty store
// there, and find it in order.
func hasData(h *home.Home) error {
	entries, err := os.ReadDir(h.Data())
	entries = slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		return entry.Name() == home.DiskFile
	})
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return fmt.Errorf("%s has no blocks: either its node was never started, or its data "+
			"folder %s is gone", h.Dir, h.Data())
	}
	return err
}

// tellDamage prints where a store is damaged, and returns the damage as a reportedError.
func tellDamage(out io.Writer, h *home.Home, damage *store.DamageError, asJSON bool) error {
	next := fmt.Sprintf("move %s away and start the node again: it fetches the chain from the "+
		"others", h.Data())
	reported := &reportedError{&hintedError{damage, next}}
	if asJSON {
		if err := writeJSONLine(out, verifyReport{FirstBadBlock: &damage.Height,
			Reason: damage.Reason}); err != nil {
			return err
		}
		return reported
	}
	if _, err := fmt.Fprintf(out, "damaged: block %d is the first one that is not right: "+
		"%s\nMove %s away and start the node again: it fetches the chain from the others.\n",
		damage.Height, damage.Reason, h.Data()); err != nil {
		return err
	}
	return reported
}

// storeOptions returns the options with which the node itself opens its store.
func storeOptions(h *home.Home) store.Options {
	seed, _ := h.Seed() // the store says that it lacks it, if it does
	return store.Options{ReserveBytes: h.Config.Store.ReserveBytes, Seed: seed}
}

// explainStore adds advice to an error of a store.
func explainStore(h *home.Home, err error) error {
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Errorf("%w: the node in %s is running; stop it first", err, h.Dir)
	case errors.Is(err, store.ErrForeign):
		return fmt.Errorf("%w: %s does not hold the chain of %s", err, h.Data(), home.GenesisFile)
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("%w\n`ledgerd verify --home %s` shows more", err, h.Dir)
	}
	return err
}

// verifyProgress returns functions that draw a bar and remove it, if the output is a terminal.
func verifyProgress(to io.Writer) (progress func(height, head ledger.Height), end func()) {
	if !isTerminal(to) {
		return nil, func() {}
	}
	var bar *progressbar.ProgressBar
	progress = func(height, head ledger.Height) {
		if bar == nil {
			bar = progressbar.NewOptions64(int64(head), progressbar.OptionSetWriter(to),
				progressbar.OptionSetDescription("blocks"),
				progressbar.OptionShowCount(), progressbar.OptionThrottle(250*time.Millisecond),
				progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
		}
		_ = bar.Set64(int64(height)) // go on even if the bar cannot be drawn
	}
	return progress, func() {
		if bar != nil {
			_ = bar.Finish() // as above
		}
	}
}
