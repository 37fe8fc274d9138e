package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
)

// recoverOptions are the flags of ledgerd recover.
type recoverOptions struct {
	homes, disks, lost, absent []string
	confirm                    string
	operators                  []string
	passphrases                passphraseOptions
	json                       bool
}

// recoverHome is a home in what ledgerd recover --json prints.
type recoverHome struct {
	Name  string             `json:"name"`
	Index ledger.MemberIndex `json:"index"`
	Home  string             `json:"home"`
	// Disk is null if the home gets a new identity with the next start or with the recovery.
	Disk       *home.DiskID  `json:"disk"`
	Remembers  bool          `json:"remembers"`
	Forgot     string        `json:"forgot"`
	Generation uint64        `json:"generation"`
	Height     ledger.Height `json:"height"`
	Hash       *ledger.Hash  `json:"hash"` // null if there are no blocks
	Durable    ledger.Height `json:"durable"`
	Perhaps    string        `json:"perhaps"`
	// ForkedAfter is the last block shared with the furthest home, if this home holds others after
	// it.
	ForkedAfter *ledger.Height `json:"forked_after"`
}

// recoverReport is what ledgerd recover --json prints.
type recoverReport struct {
	Homes     []recoverHome         `json:"homes"`
	Furthest  string                `json:"furthest"`
	Members   int                   `json:"members"`
	Needed    bool                  `json:"needed"`
	Durable   ledger.Height         `json:"durable"`
	Rounds    int                   `json:"rounds"`
	Lost      ledger.Height         `json:"lost"` // number of blocks known to be lost
	Changes   []node.RecoveryChange `json:"changes"`
	Refused   string                `json:"refused"`
	Word      string                `json:"word"`
	Recovered bool                  `json:"recovered"`
	Height    *ledger.Height        `json:"height"`
	Hash      *ledger.Hash          `json:"hash"`
}

// newRecoverCommand returns the `ledgerd recover` command.
func newRecoverCommand() *cobra.Command {
	var o recoverOptions
	command := &cobra.Command{
		Use:   "recover --home DIR ... [--operator FILE]",
		Short: "Go on with a ledger after a majority of the disks forgot",
		Long: `Go on with a ledger after a majority of the disks forgot.

A ledger survives the loss of any minority of its disks by itself. If a majority
lost their data or their promises, or are copies, no node can know what was
acknowledged, and the nodes wait. This command shows what every remaining home
holds: whether its disk remembers, its last block, and up to which block it knows
the chain to be durable. Without confirmation it changes nothing.

With the confirming word it goes on from the furthest home: blocks signed by the
operator name the disks that count from there on. They stay in the chain, and
ledgerd block shows them. After that, start all nodes. They fetch what they lack.
Blocks that no home holds are lost, even if they were acknowledged as durable. So
look for more homes first: one disk that remembers may hold more than all others.

Account for each member with one of these:

  --home DIR         its home is on this machine, where its node will run
  --disk NAME=DISK   its home is on another machine: its disk as this command
                     shows it there. If it shows none, run ledgerd forget
                     --home DIR there first, which gives the home a new disk
  --lost NAME        its home is gone for good: the member leaves
  --absent NAME      its node may come back: it stays a member. If it comes back
                     with durable blocks that are given up here, it stops with an
                     error

Run it on each machine, and recover on the one with the furthest home. Do not move
homes between machines for this: a copied home counts as a disk that forgot. No
node of the ledger may be running, here or elsewhere.

The confirming word is the name of the furthest home's member. Type it when you are
asked, or pass it with --confirm. An operator's key has to sign, unless the ledger
has only one member or no operators.

The exit status is 0 only if the ledger was recovered. The keys of --json:

  homes      name, index, home, disk, remembers, forgot (why), generation, height,
             hash, durable, perhaps (why it may have held more), forked_after
  furthest   the member from whose home the ledger goes on
  members    number of members
  needed     false if the nodes form a group by themselves
  durable    the highest block that a home knows to be durable
  rounds     number of decided rounds that the furthest home has not executed; a
             recovery executes them
  lost       number of blocks beyond the furthest head that a home knows of
  changes    kind (admit or leave), index, name, disk, height
  refused    why a recovery is impossible, or ""
  word       the confirming word
  recovered  whether it was done
  height, hash  the new head, if it was done`,
		Example: `  # See what is left
  ledgerd recover --home net/node-0 --home net/node-1 --home net/node-2

  # Go on from node-1, which is the furthest
  ledgerd recover --home net/node-0 --home net/node-1 --home net/node-2 \
      --operator net/operator.key --confirm node-1

  # The same if each node has a machine of its own, and node-2's burned
  ledgerd recover --home ledger --disk node-0=c0ffee00c0ffee00c0ffee00c0ffee00 --lost node-2 \
      --operator operator.key`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.run(command) },
	}
	flags := command.Flags()
	flags.StringArrayVar(
		&o.homes,
		"home",
		nil,
		"a member's home folder on this machine; may be repeated (required)",
	)
	flags.StringArrayVar(
		&o.disks,
		"disk",
		nil,
		"NAME=DISK of a member on another machine; may be repeated",
	)
	flags.StringArrayVar(
		&o.lost,
		"lost",
		nil,
		"name of a member whose home is gone for good; may be repeated",
	)
	flags.StringArrayVar(
		&o.absent,
		"absent",
		nil,
		"name of a member that may come back; may be repeated",
	)
	flags.StringSliceVar(
		&o.operators,
		"operator",
		nil,
		"file with an operator's key, for example net/operator.key; several with commas or "+
			"repeated, as many as have to sign",
	)
	o.passphrases.bind(command)
	flags.StringVar(
		&o.confirm,
		"confirm",
		"",
		"the confirming word, for programs: the name of the furthest home's member",
	)
	addJSONFlag(command, &o.json)
	return command
}

func (o *recoverOptions) run(command *cobra.Command) error {
	options, err := o.read()
	if err != nil {
		return err
	}
	r, err := node.PlanRecovery(options)
	if err != nil {
		return explainRecovery(err)
	}
	report := newRecoverReport(r)
	out := command.OutOrStdout()
	if !o.json {
		if err := report.write(out, r); err != nil {
			return err
		}
	}
	confirmed := false
	if !r.Forms && r.Refused == nil {
		if confirmed, err = o.confirmed(command, r.ConfirmationWord()); err != nil {
			return err
		}
	}
	if confirmed {
		if err := o.recover(command.Context(), r, report); err != nil {
			return err
		}
	}
	if o.json {
		err = writeJSON(out, report)
	} else {
		err = report.writeEnd(out)
	}
	if err == nil && !report.Recovered {
		return &reportedError{errors.New("nothing was recovered: see the report")}
	}
	return err
}

// read converts the flags to the options of a recovery.
func (o *recoverOptions) read() (options node.RecoveryOptions, err error) {
	if len(o.homes) == 0 {
		return options,
			usagef("--home is missing: name the home folders of all nodes that are left")
	}
	options = node.RecoveryOptions{
		Lost: o.lost, Absent: o.absent, Disks: map[string]ledger.DiskID{}, Store: storeOptions,
	}
	for _, text := range o.disks {
		name, digits, _ := strings.Cut(text, "=")
		disk, err := ledger.ParseDiskID(digits)
		if err != nil || name == "" || disk.IsZero() {
			return options, usagef(
				"--disk %s: want NAME=DISK, where the disk has 32 hex digits",
				sanitize(text, 80),
			)
		}
		options.Disks[name] = disk
	}
	for _, dir := range o.homes {
		h, err := loadHome(dir)
		if err != nil {
			return options, err
		}
		options.Homes = append(options.Homes, h)
	}
	return options, nil
}

// confirmed reports whether the operator gave the word. Without --confirm it asks, on a terminal
// only.
func (o *recoverOptions) confirmed(command *cobra.Command, word string) (bool, error) {
	given := o.confirm
	if file, isFile := command.InOrStdin().(*os.File); given == "" && isFile &&
		term.IsTerminal(int(file.Fd())) {
		_, err := fmt.Fprintf(command.ErrOrStderr(),
			"Type %s to go on from its home, anything else to leave all as it is: ", word)
		if err != nil {
			return false, err
		}
		line, err := bufio.NewReader(file).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		given = strings.TrimSpace(line)
	}
	if given != "" && given != word {
		return false, fmt.Errorf(
			"the confirming word is %s, not %s: nothing was changed",
			word,
			sanitize(given, 80),
		)
	}
	return given == word, nil
}

// recover performs the recovery, and records the result in the report.
func (o *recoverOptions) recover(ctx context.Context, r *node.Recovery,
	report *recoverReport) error {
	keys, err := o.passphrases.operators(o.operators)
	if err != nil {
		return err
	}
	operators := make([]*node.Operator, len(keys))
	for i, key := range keys {
		operators[i] = &node.Operator{Key: key.Public(), Sign: func(bundle *ledger.Bundle) error {
			return key.SignBundle(ctx, bundle)
		}}
	}
	done, err := r.Do(operators...)
	if err != nil {
		return explainRecovery(err)
	}
	report.Recovered, report.Changes = true, done.Changes
	report.Height, report.Hash = &done.Head.Height, &done.Head.Hash
	return nil
}

// explainRecovery adds advice to an error of a recovery.
func explainRecovery(err error) error {
	switch {
	case errors.Is(err, home.ErrLocked), errors.Is(err, store.ErrLocked):
		return fmt.Errorf("%w: a node of the ledger is running; stop all of them first", err)
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf(
			"%w; `ledgerd verify` shows more. If other homes hold as much, move the data folder "+
				"of this one to another place, and run the command again",
			err,
		)
	}
	return err
}

func newRecoverReport(r *node.Recovery) *recoverReport {
	report := &recoverReport{
		Furthest: r.From.Name, Members: len(r.Members.Members), Needed: !r.Forms,
		Durable: r.Durable, Rounds: r.Rounds,
		Lost: max(r.Seen, r.From.Head.Height) - r.From.Head.Height, Changes: r.Changes,
		Word: r.ConfirmationWord(),
	}
	if report.Changes == nil {
		report.Changes = []node.RecoveryChange{}
	}
	if r.Refused != nil && !r.Forms {
		report.Refused = sentence(r.Refused)
	}
	for i := range r.Homes {
		h := &r.Homes[i]
		shown := recoverHome{
			Name: h.Name, Index: h.Index, Home: h.Home, Remembers: h.Forgot == "", Forgot: h.Forgot,
			Generation: uint64(h.Generation), Height: h.Head.Height, Durable: h.Durable,
			Perhaps: h.Perhaps,
		}
		if !h.Disk.Renewed && !h.Disk.ID.IsZero() {
			shown.Disk = &h.Disk.ID
		}
		if h.Blocks {
			shown.Hash = &h.Head.Hash
		}
		if h.Forked {
			shown.ForkedAfter = &h.Common
		}
		report.Homes = append(report.Homes, shown)
	}
	return report
}

// write prints the remaining homes, and the effect of a recovery.
func (report *recoverReport) write(out io.Writer, r *node.Recovery) error {
	rows := table{
		header: []string{"NAME", "HEAD", "HASH", "DURABLE", "GENERATION", "DISK", "REMEMBERS"},
		right:  []bool{false, true, false, true, true},
	}
	for i := range report.Homes {
		h := &report.Homes[i]
		hash, disk, remembers := "-", "new at the next start", "yes"
		if h.Hash != nil {
			hash = h.Hash.String()[:12]
		}
		if h.Disk != nil {
			disk = h.Disk.String()
		}
		if !h.Remembers {
			remembers = "no: " + sanitize(h.Forgot, 120)
		}
		rows.add(
			h.Name,
			fmt.Sprint(h.Height),
			hash,
			fmt.Sprint(h.Durable),
			fmt.Sprint(h.Generation),
			disk,
			remembers,
		)
	}
	if err := rows.write(out); err != nil {
		return err
	}
	var text strings.Builder
	say := func(format string, arguments ...any) { fmt.Fprintf(&text, format+"\n", arguments...) }
	for i := range report.Homes {
		h := &report.Homes[i]
		if h.Perhaps != "" {
			say("%s may have held more: %s.", h.Name, sanitize(h.Perhaps, 0))
		}
		if h.ForkedAfter != nil {
			say(
				"%s holds other blocks than %s after block %d. Its node will set them aside.",
				h.Name,
				report.Furthest,
				*h.ForkedAfter,
			)
		}
	}
	switch {
	case r.Forms:
		say("No recovery is needed: enough disks remember. Start the nodes.")
	case report.Refused != "":
		say(
			"The nodes cannot go on by themselves: too few of the disks of %s remember.",
			plural(report.Members, "member"),
		)
		say("And they cannot be recovered like this: %s.", report.Refused)
	default:
		report.tellPlan(say, r)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// tellPlan prints what a recovery would keep, lose and change.
func (report *recoverReport) tellPlan(say func(format string, arguments ...any), r *node.Recovery) {
	head := r.From.Head.Height
	say(
		"The nodes cannot go on by themselves: too few of the disks of %s remember.",
		plural(report.Members, "member"),
	)
	say(
		"A recovery goes on from block %d of %s. Everything up to there is kept.",
		head,
		report.Furthest,
	)
	if report.Rounds > 0 {
		say("%s that were decided but not executed there follow it.",
			plural(report.Rounds, "round"))
	}
	if report.Durable > 0 {
		say("Blocks up to %d are known to have been durable.", report.Durable)
	}
	if report.Lost > 0 {
		say(
			"Blocks %d to %d were ordered, but no home here holds them. They are lost.",
			head+1,
			head+report.Lost,
		)
	}
	say("No home here knows whether more was acknowledged after block %d: it would be lost.",
		head)
	for _, change := range report.Changes {
		switch {
		case change.Kind == ledger.ChangeLeave:
			say("  %s leaves", change.Name)
		case change.Disk.IsZero():
			say("  %s counts with a new disk", change.Name)
		default:
			say("  %s counts with disk %s", change.Name, change.Disk)
		}
	}
}

// writeEnd prints the result.
func (report *recoverReport) writeEnd(out io.Writer) error {
	text := ""
	switch {
	case report.Recovered:
		text = fmt.Sprintf("Recovered: the ledger goes on after block %d.", *report.Height)
		if n := len(report.Changes); n > 0 {
			text += fmt.Sprintf(
				" Blocks %d to %d say so.",
				report.Changes[0].Height,
				report.Changes[n-1].Height,
			)
		}
		text += "\nStart all nodes."
	case report.Needed && report.Refused == "":
		text = fmt.Sprintf(
			"Nothing was changed. To recover, give the same command with --confirm %s and "+
				"--operator.",
			report.Word,
		)
	default:
		text = "Nothing was changed."
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
