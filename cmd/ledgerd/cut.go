package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/book"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// cutReport is what ledgerd cut --json prints, and what --cut reads.
type cutReport struct {
	Root   uint32           `json:"root"`    // the shard whose blocks --at names
	TimeMS uint64           `json:"time_ms"` // of the root's block
	Places []cutPlaceReport `json:"places"`
}

// cutPlaceReport is the place of a cut in a shard's chain: after block height, and after the first
// entries of the next block. Carried and streamed are the entries of the streams from the parent
// and to the children before it.
type cutPlaceReport struct {
	Shard    uint32   `json:"shard"`
	Height   uint64   `json:"height"`
	Entries  uint32   `json:"entries"`
	Carried  uint64   `json:"carried"`
	Streamed []uint64 `json:"streamed"`
}

// maxCutFile bounds the file that --cut reads. A cut of the largest tree is smaller.
const maxCutFile = 16 << 20

// newCutCommand returns the `ledgerd cut` command.
func newCutCommand() *cobra.Command {
	var options remoteOptions
	var at atFlag
	var asJSON bool
	command := &cobra.Command{
		Use:   "cut",
		Short: "Show one place in the chain of each shard where all balances add up",
		Long: `Show one place in the chain of each shard where all balances add up.

A cut is between blocks, or within one: after block HEIGHT, and after the first
ENTRIES of the next block. Each transaction is before the places of all of its
shards or of none. So the balances there are those of one book, whatever is on its
way between the shards, and they stay the same for ever.

Without --at, the cut has everything that is durable at the nodes that are asked.
With --at it is the end of that block of the root's chain, and near the time of the
block in the others. --at also takes a day of UTC or a moment (RFC 3339): then the
cut is near the last blocks up to the end of the day, or before the moment, in all
chains. All shards have to answer.

The output of --json is what ledgerd export and ledgerd account show take with
--cut: they read there later, or at another node.`,
		Example: `  ledgerd cut
  ledgerd cut --at 1000 --json > cut.json
  ledgerd export --balances --cut cut.json --node http://127.0.0.1:26601`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			nodes, ctx, done, err := options.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			cut, err := at.cut(ctx, nodes)
			if err != nil {
				return err
			}
			report := reportCut(cut)
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			rows := table{header: []string{"SHARD", "HEIGHT", "ENTRIES"},
				right: []bool{true, true, true}}
			for _, place := range report.Places {
				rows.add(fmt.Sprint(place.Shard), fmt.Sprint(place.Height),
					fmt.Sprint(place.Entries))
			}
			return rows.write(command.OutOrStdout())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command, false)
	command.Flags().Var(&at, "at", "the cut at the end of this block of the root's chain, or of "+
		"this day, or before this moment (RFC 3339)")
	addJSONFlag(command, &asJSON)
	return command
}

func reportCut(cut *ledgerdv1.GetCutResponse) cutReport {
	report := cutReport{Root: cut.GetRoot(), TimeMS: cut.GetTimeMs(), Places: []cutPlaceReport{}}
	for shard, place := range cut.GetPlaces() {
		report.Places = append(report.Places, cutPlaceReport{Shard: uint32(shard),
			Height: place.GetHeight(), Entries: place.GetEntries(), Carried: place.GetCarried(),
			Streamed: append([]uint64{}, place.GetStreamed()...)})
	}
	return report
}

// cutFlags are the flags that choose a cut to read at.
type cutFlags struct {
	at   atFlag
	file string
}

// atFlag is a block of the root's chain, or a moment: the ends of the last blocks with earlier
// times.
type atFlag struct {
	text           string // "" if it is not given
	height, moment uint64
}

// String implements pflag.Value.
func (f *atFlag) String() string { return f.text }

// Type implements pflag.Value.
func (*atFlag) Type() string { return "block" }

// Set implements pflag.Value.
func (f *atFlag) Set(text string) (err error) {
	if f.text = text; text == "0" {
		return nil
	}
	if text == "" {
		return errors.New("give a block, a day or a moment")
	}
	days := &periodFlags{location: time.UTC}
	f.height, f.moment, err = days.bound("at", text, 1)
	return err
}

// cut returns the cut there, or one of now if none is given.
func (f *atFlag) cut(ctx context.Context, nodes *client.Client) (*ledgerdv1.GetCutResponse, error) {
	switch {
	case f.text == "":
		return nodes.Cut(ctx, nil)
	case f.moment == 0:
		return nodes.Cut(ctx, &f.height)
	}
	return nodes.CutBefore(ctx, ledger.Milliseconds(f.moment))
}

// inStore returns the block in the chain of a store.
func (f *atFlag) inStore(opened *store.Store) (ledger.Height, error) {
	if f.moment == 0 {
		return ledger.Height(f.height), nil
	}
	return opened.HeightBefore(ledger.Milliseconds(f.moment))
}

// bind adds the flags to a command that reads balances.
func (f *cutFlags) bind(command *cobra.Command) { f.bindTo(command, "balances") }

// bindTo adds the flags to a command, and says what it reads.
func (f *cutFlags) bindTo(command *cobra.Command, what string) {
	command.Flags().Var(&f.at, "at", "read the "+what+" at the end of this block of the root's "+
		"chain, or of this day, or before this moment (RFC 3339)")
	command.Flags().StringVar(&f.file, "cut", "", "read the "+what+" at the cut in this file, "+
		"which ledgerd cut --json wrote; - for the standard input")
	command.MarkFlagsMutuallyExclusive("at", "cut")
}

// until returns the block in the chain of a store, or nil if none is given.
func (f *atFlag) until(opened *store.Store) (*uint64, error) {
	if f.text == "" {
		return nil, nil
	}
	height, err := f.inStore(opened)
	return (*uint64)(&height), err
}

// read returns the cut in the file, or nil if there is no --cut.
func (f *cutFlags) read(command *cobra.Command) ([]*ledgerdv1.Place, error) {
	if !command.Flags().Changed("cut") {
		return nil, nil
	}
	from := command.InOrStdin()
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, asUsage(fmt.Errorf("--cut: %w", err))
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxCutFile+1))
	if err != nil {
		return nil, fmt.Errorf("--cut %s: %w", f.file, err)
	}
	places, err := parseCut(text)
	if err != nil {
		return nil, asUsage(fmt.Errorf("--cut %s: %w: give a file that ledgerd cut --json wrote",
			f.file, err))
	}
	return places, nil
}

// parseCut reads the places of a cut that ledgerd cut --json wrote.
func parseCut(text []byte) (places []*ledgerdv1.Place, err error) {
	if len(text) > maxCutFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxCutFile)
	}
	var report cutReport
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	if len(report.Places) == 0 {
		return nil, fmt.Errorf("it has no places")
	}
	for i, place := range report.Places {
		if int64(place.Shard) != int64(i) {
			return nil, fmt.Errorf("place %d of it is of shard %d", i, place.Shard)
		}
		places = append(places, &ledgerdv1.Place{Height: place.Height, Entries: place.Entries,
			Carried: place.Carried, Streamed: place.Streamed})
	}
	return places, nil
}

// find returns the cut in the file or at the height, or a new one.
func (f *cutFlags) find(ctx context.Context, command *cobra.Command,
	nodes *client.Client) ([]*ledgerdv1.Place, error) {
	places, err := f.read(command)
	if err != nil || places != nil {
		return places, err
	}
	cut, err := f.at.cut(ctx, nodes)
	return cut.GetPlaces(), err
}

// chosen reports whether the flags choose a cut.
func (f *cutFlags) chosen(command *cobra.Command) bool {
	return command.Flags().Changed("at") || command.Flags().Changed("cut")
}

// account returns an account at the cut that the flags choose, or as it is now if they choose none.
func (f *cutFlags) account(ctx context.Context, command *cobra.Command, nodes *client.Client,
	path ledger.AccountPath) (*ledgerdv1.Account, error) {
	if !f.chosen(command) {
		return nodes.Account(ctx, path)
	}
	places, err := f.find(ctx, command, nodes)
	if err != nil {
		return nil, err
	}
	return nodes.AccountAt(ctx, path, places)
}

// asset returns an asset at the cut that the flags choose, or as it is now if they choose none.
func (f *cutFlags) asset(ctx context.Context, command *cobra.Command, nodes *client.Client,
	name ledger.AssetName) (*ledgerdv1.Asset, error) {
	if !f.chosen(command) {
		return nodes.Asset(ctx, name)
	}
	places, err := f.find(ctx, command, nodes)
	if err != nil {
		return nil, err
	}
	return nodes.AssetAt(ctx, name, places)
}

// atCut returns for a report whether what is shown is of the cut that the flags choose; nil if they
// choose none.
func (f *cutFlags) atCut(command *cobra.Command, is bool) *bool {
	if !f.chosen(command) {
		return nil
	}
	return &is
}

// isNow reports whether the report is as of a cut, and what the node does not know of then is that
// of now.
func isNow(atCut *bool) bool { return atCut != nil && !*atCut }

// placeIn returns the place of a store's chain that the flags choose, or nil if they choose none.
// It checks that the cut is one, as far as this chain can tell.
func (f *cutFlags) placeIn(command *cobra.Command, opened *store.Store) (*store.Place, error) {
	tree := opened.ShardTree()
	if f.at.text != "" {
		if tree != nil {
			return nil, usagef("--at is a block of the root's chain, and a folder has the chain " +
				"of one shard: take a cut from a running node with ledgerd cut --at --json, and " +
				"give it with --cut")
		}
		height, err := f.at.inStore(opened)
		return &store.Place{Height: height}, err
	}
	cut, err := f.read(command)
	if err != nil || cut == nil {
		return nil, err
	}
	place, err := book.PlaceIn(command.Context(), opened, api.PositionsOf(cut...),
		opened.AppendedHeight())
	if err != nil {
		return nil, fmt.Errorf("--cut %s: %w", f.file, err)
	}
	return &place, nil
}

// cutText writes a cut as one word: for each shard its number, its height and, within a block, the
// entries of the next one, such as 0:12,1:9+2.
func cutText(cut []*ledgerdv1.Place) string {
	var places []string
	for shard, place := range cut {
		text := fmt.Sprintf("%d:%d", shard, place.GetHeight())
		if place.GetEntries() > 0 {
			text += fmt.Sprintf("+%d", place.GetEntries())
		}
		places = append(places, text)
	}
	return strings.Join(places, ",")
}
