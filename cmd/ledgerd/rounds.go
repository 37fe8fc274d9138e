package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// roundsOptions are the flags of ledgerd rounds.
type roundsOptions struct {
	remote   remoteOptions
	follow   bool
	last     int
	duration time.Duration
	out      string
	json     bool
}

// The bounds of GetRounds.
const (
	lastRoundsMax   = 32_768
	recordRoundsMax = 10 * time.Second
	recordingMax    = 64 << 20 // bytes of a file
)

// newRoundsCommand returns the `ledgerd rounds` command.
func newRoundsCommand() *cobra.Command {
	var options roundsOptions
	command := &cobra.Command{
		Use:   "rounds [FILE]",
		Short: "Show the messages of rounds as they pass at a node",
		Long: `Show the messages of rounds as they pass at a node.

All servers of a shard order together, in rounds. In each round every server sends
one message, and the others pass it on over the edges of a digraph. This command
shows what one node sees of it: which message came from which server and went to
which, whom the round waits for, what was ordered, and which block that became.

Without --follow and --last, the node records for two seconds (--for), and you see
what passed. With --last it shows the newest events that the node has, which are
those of when somebody last watched; a node with ordering.record_rounds always
records. With --follow, events are shown as they come, until you stop the command.

[E,R] is round R of epoch E over trees, [[E,R]] the same over the reliable digraph,
as after a failure. BCAST and RBCAST are messages, FAIL says that a server failed,
FWD and BWD are votes. Times are seconds since the node began, to the microsecond.
An idle group sends nothing.

--out FILE keeps a recording, as JSON. The explorer replays it step by step, also
without a node (the page "Rounds"), and ledgerd rounds FILE shows it again.

Only what passes at this node is seen: nothing between two others. Messages are
shown without their contents. Where a node knows its callers, operators and
auditors may ask.`,
		Example: `  ledgerd rounds
  ledgerd rounds --follow
  ledgerd rounds --last 200 --json | jq '.events[].kind'

  # Keep five seconds, and look at them again
  ledgerd rounds --for 5s --out rounds.json
  ledgerd rounds rounds.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: options.run,
	}
	options.remote.bind(command, false)
	command.Flags().BoolVar(&options.follow, "follow", false, "show events as they come")
	command.Flags().IntVar(&options.last, "last", 0,
		"show so many of the newest events (default 4096)")
	command.Flags().DurationVar(&options.duration, "for", 2*time.Second,
		"record for so long first, at most 10s; not with --last alone")
	command.Flags().StringVar(&options.out, "out", "", "write the recording to this file")
	addJSONFlag(command, &options.json)
	return command
}

func (o *roundsOptions) run(command *cobra.Command, arguments []string) error {
	flags := command.Flags()
	switch {
	case o.last < 0 || o.last > lastRoundsMax:
		return usagef("--last is %d: it has to be from 1 to %d", o.last, lastRoundsMax)
	case flags.Changed("for") && (o.duration <= 0 || o.duration > recordRoundsMax):
		return usagef("--for is %s: it has to be above zero and at most %s", o.duration,
			recordRoundsMax)
	case o.follow && (flags.Changed("last") || flags.Changed("for") || o.out != ""):
		return usagef("--follow has no end: record with --for or --last instead")
	case len(arguments) > 0 && (o.follow || flags.Changed("last") || flags.Changed("for") ||
		o.out != ""):
		return usagef("a recorded file is only shown: leave out the flags that ask a node")
	case len(arguments) > 0:
		recording, err := readRecording(arguments[0])
		if err != nil {
			return err
		}
		return o.show(command.OutOrStdout(), recording)
	}
	if flags.Changed("last") && !flags.Changed("for") {
		o.duration = 0
	}
	if o.follow && !flags.Changed("timeout") {
		o.remote.timeout = 0
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	if o.follow {
		return o.followRounds(ctx, command.OutOrStdout(), nodes)
	}
	recording, err := nodes.Rounds(ctx, o.last, o.duration)
	if err != nil {
		return err
	}
	if o.out != "" {
		return o.keep(command.OutOrStdout(), recording)
	}
	return o.show(command.OutOrStdout(), recording)
}

// readRecording reads a recorded file.
func readRecording(path string) (*ledgerdv1.Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, asUsage(err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, recordingMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(text) > recordingMax {
		return nil, fmt.Errorf("%s has more than %d bytes", path, recordingMax)
	}
	recording, err := client.DecodeRecording(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return recording, nil
}

// keep writes a recording to the file --out.
func (o *roundsOptions) keep(out io.Writer, recording *ledgerdv1.Recording) error {
	text, err := client.EncodeRecording(recording)
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.out, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}
	if o.json {
		return writeJSON(out, map[string]any{"file": o.out, "events": len(recording.GetEvents())})
	}
	_, err = fmt.Fprintf(out, "%s in %s\n", plural(len(recording.GetEvents()), "event"), o.out)
	return err
}

// show prints a recording.
func (o *roundsOptions) show(out io.Writer, recording *ledgerdv1.Recording) error {
	if o.json {
		text, err := client.EncodeRecording(recording)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	}
	lines := roundLines{out: bufio.NewWriter(out)}
	lines.learn(recording)
	for _, run := range recording.GetRuns() {
		lines.run(run)
	}
	lines.events(recording)
	switch {
	case len(recording.GetEvents()) > 0:
	case o.duration == 0 && !recording.GetRecording():
		lines.say("nothing is recorded: use --follow or --for, or set ordering.record_rounds " +
			"at the node")
	default:
		lines.say("nothing passed: an idle group sends nothing")
	}
	return lines.end()
}

// followRounds prints events as they come.
func (o *roundsOptions) followRounds(ctx context.Context, out io.Writer,
	nodes *client.Client) error {
	lines := roundLines{out: bufio.NewWriter(out)}
	err := nodes.WatchRounds(ctx, func(recording *ledgerdv1.Recording) error {
		if o.json {
			text, err := client.EncodeRecording(recording)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%s\n", text)
			return err
		}
		begins := lines.names == nil
		lines.learn(recording)
		if begins {
			for _, run := range recording.GetRuns() {
				lines.run(run)
			}
		}
		lines.events(recording)
		return lines.end()
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// roundLines prints events on a line each.
type roundLines struct {
	out   *bufio.Writer
	names map[uint32]string
	self  uint32 // the member that recorded
}

func (l *roundLines) learn(recording *ledgerdv1.Recording) {
	if l.names == nil { // later messages of a stream do not name it
		l.names, l.self = map[uint32]string{}, recording.GetNode()
	}
	for _, member := range recording.GetMembers() {
		if member.GetName() != "" {
			l.names[member.GetIndex()] = sanitize(member.GetName(), 0)
		}
	}
}

// say prints a line. Its error comes with end.
func (l *roundLines) say(text string) { _, _ = fmt.Fprintln(l.out, text) }

func (l *roundLines) end() error { return l.out.Flush() }

// run prints a run: an eon of a generation.
func (l *roundLines) run(run *ledgerdv1.RoundRun) {
	text := fmt.Sprintf("%14s  generation %d, eon %d: from round %d, %s", seconds(run.GetBegunUs()),
		run.GetGeneration(), run.GetEon(), run.GetFirstRound(), l.list(run.GetMembers()))
	if run.GetEndedUs() > 0 {
		text += fmt.Sprintf("; ended at %s: %s", seconds(run.GetEndedUs()),
			sanitize(run.GetEnd(), 0))
	}
	l.say(text)
}

func (l *roundLines) events(recording *ledgerdv1.Recording) {
	if dropped := recording.GetDropped(); dropped > 0 && len(recording.GetRuns()) == 0 {
		l.say(fmt.Sprintf("%14s  %d events came too fast and are missing", "...", dropped))
	}
	for _, event := range recording.GetEvents() {
		l.say(fmt.Sprintf("%14s  %-12s  %s", seconds(event.GetAtUs()), roundState(event),
			l.describe(event)))
	}
}

// seconds formats microseconds as seconds.
func seconds(micros uint64) string { return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6) }

// roundState formats the round of an event as the papers do.
func roundState(event *ledgerdv1.RoundEvent) string {
	switch {
	case event.GetRound() == 0:
		return ""
	case event.GetReliable() || event.GetFrame() != "" && event.GetFrame() != "BCAST":
		return fmt.Sprintf("[[%d,%d]]", event.GetEpoch(), event.GetRound())
	default:
		return fmt.Sprintf("[%d,%d]", event.GetEpoch(), event.GetRound())
	}
}

func (l *roundLines) name(index uint32) string {
	if name := l.names[index]; name != "" {
		return name
	}
	return fmt.Sprintf("member %d", index)
}

func (l *roundLines) list(indexes []uint32) string {
	names := make([]string, len(indexes))
	for i, index := range indexes {
		names[i] = l.name(index)
	}
	return strings.Join(names, ", ")
}

// message describes a frame.
func (l *roundLines) message(event *ledgerdv1.RoundEvent) string {
	text := sanitize(event.GetFrame(), 16)
	if event.Target != nil {
		text += fmt.Sprintf(" of %s by %s", l.name(event.GetTarget()), l.name(event.GetOrigin()))
	} else {
		text += " of " + l.name(event.GetOrigin())
	}
	return fmt.Sprintf("%s, %s", text, plural(int(event.GetBytes()), "byte"))
}

// describe says what happened.
func (l *roundLines) describe(event *ledgerdv1.RoundEvent) string {
	switch event.GetKind() {
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_RUN_BEGUN:
		return "a run begins: " + l.list(event.GetServers())
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_RUN_ENDED:
		return "the run is over"
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_MODE:
		if event.GetReliable() {
			return "reliable rounds, over the digraph"
		}
		return "unreliable rounds, over trees"
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_BROADCAST:
		return fmt.Sprintf("own message, %s", plural(int(event.GetBytes()), "byte"))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_RECEIVED:
		return fmt.Sprintf("from %s: %s", l.name(event.GetFrom()), l.message(event))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_SENT:
		return fmt.Sprintf("to %s: %s", l.name(event.GetTo()), l.message(event))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_WAITS:
		what := "messages"
		if event.GetDecided() {
			what = "votes"
		}
		if len(event.GetServers()) == 0 {
			return "waits for nobody"
		}
		if slices.Contains(event.GetServers(), l.self) {
			return "the round has not begun here: no own message yet"
		}
		return fmt.Sprintf("waits for %s of %s", what, l.list(event.GetServers()))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_TRACKS:
		return fmt.Sprintf("the message of %s can be at %s", l.name(event.GetOrigin()),
			l.list(event.GetServers()))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_DELIVERED:
		return fmt.Sprintf("ordered: messages of %s, %s", l.list(event.GetServers()),
			plural(int(event.GetBytes()), "byte"))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_REMOVED:
		return "left the group: " + l.list(event.GetServers())
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_SEALED:
		return fmt.Sprintf("block %d, %s", event.GetHeight(), moment(event.GetBlockTimeMs()))
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_SUSPECTED:
		return "suspects " + l.name(event.GetOrigin())
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_TRUSTED:
		return "trusts again " + l.name(event.GetOrigin())
	case ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_LOST:
		return l.name(event.GetOrigin()) + " is lost to this run"
	default:
		return "something that this program does not know"
	}
}
