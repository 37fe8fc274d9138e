package node

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
)

// The members of a run order by the engine that the chain names at the run's base (shard.Group). A
// chain begins without a name: the members then take the engine of their settings, which are equal.
// From the first change of the engine on (ledger.ChangeEngine), that setting means nothing.

// settingsSeparator is between the engine and the other settings that members compare.
const settingsSeparator = ", "

// sameSettings lists the keys of [ordering], besides engine, that members compare.
const sameSettings = "detector, trains, prompt and batch_bytes_max"

// settings names the settings without which members cannot order together, for announcements.
func settings(config home.OrderingConfig) string {
	text := config.Engine + settingsSeparator + config.Detector
	made, err := engine.Of(config.Engine)
	usual := cmp.Or(config.Trains, engine.TrainsDefault) == engine.TrainsDefault
	if err == nil && made.Trains || !usual {
		text += trainsSetting(config.Trains)
	}
	if config.Prompt {
		text += ", prompt"
	}
	if size := config.BatchBytesMax; size != home.BatchBytesDefault {
		text += fmt.Sprintf("%smessages of up to %d bytes", settingsSeparator, size)
	}
	return text
}

// trainsSetting names the number of trains. Members whose engine has none, and that have the usual
// number, announce what programs do that know of no trains.
func trainsSetting(trains int) string {
	return fmt.Sprintf("%s%d trains", settingsSeparator, trains)
}

// agree reports whether members with these settings can order together, in a chain that names an
// engine or none.
func agree(ours, its string, named bool) bool {
	if !named {
		return ours == its
	}
	_, ours, _ = strings.Cut(ours, settingsSeparator)
	_, its, _ = strings.Cut(its, settingsSeparator)
	usual := trainsSetting(engine.TrainsDefault)
	return strings.Replace(ours, usual, "", 1) == strings.Replace(its, usual, "", 1)
}

// compareSettings logs once if a member is configured with other settings, or with another engine
// while the chain names none.
func (l *life) compareSettings(server order.ServerID, its string) {
	ours := settings(l.node.home.Config.Ordering)
	named := l.node.Store().Engine().Name != ""
	differs := !agree(ours, its, named)
	l.mu.Lock()
	said := l.warned[server]
	l.warned[server] = said || differs
	l.mu.Unlock()
	switch {
	case !differs || said:
	case named:
		l.node.logger.Error("a member is configured with another detector, number of trains, "+
			"prompt or size of messages: set [ordering] "+sameSettings+" to the same values on "+
			"all nodes and restart them", "member", server, "its", its, "ours", ours)
	default:
		l.node.logger.Error("a member is configured with another engine, number of trains, "+
			"detector, prompt or size of messages: set [ordering] engine, "+sameSettings+" to "+
			"the same values on all nodes and restart them", "member", server, "its", its, "ours",
			ours)
	}
}

// engineNamed returns an engine by its name in the settings or in the chain. The error says what to
// do if this program does not have it.
func engineNamed(name string) (engine.Engine, error) {
	made, err := engine.All().With(engine.Engine.RunsInNode).Of(name)
	if err != nil {
		return made, fmt.Errorf("the members order by engine %q, which this program does not run: "+
			"install the ledgerd that the other members have, and start this node again; it has "+
			"lost nothing (%w)", name, err)
	}
	return made, nil
}

// engineChoice returns the engine by which the members order from the next run on, and the height
// of the block that named it, 0 if it is that of the settings.
func (n *Node) engineChoice() ledger.EngineChoice {
	choice := n.Store().Engine()
	choice.Name = cmp.Or(choice.Name, n.home.Config.Ordering.Engine)
	return choice
}

// warnOfEngine says at the start which settings have no effect: that of the engine, if the chain
// names another one, and those that the engine does not have.
func (n *Node) warnOfEngine() {
	config := n.home.Config.Ordering
	setting := config.Engine
	if choice := n.engineChoice(); choice.Name != setting {
		n.logger.Warn("the chain names the engine, so this node's setting of it has no effect; "+
			"set [ordering] engine to the same for the sake of people who read it",
			"engine", choice.Name, "since_block", choice.Height, "setting", setting)
	}
	made, err := engineNamed(n.engineChoice().Name)
	if err != nil {
		return // the next run says so
	}
	if config.Prompt && !made.HasPrompt() || config.LogRounds && !made.LogsRounds() {
		n.logger.Info("the engine has neither prompt nor log_rounds, so these settings have no "+
			"effect", "engine", made.Name)
	}
}

// refusesEngine returns why a change of the engine cannot be ordered now, or nil.
func (l *life) refusesEngine(name string) *report.Refusal {
	refuse := func(format string, arguments ...any) *report.Refusal {
		return &report.Refusal{Code: report.RefusedMalformed,
			Reason: fmt.Sprintf(format, arguments...)}
	}
	runnable := engine.All().With(engine.Engine.RunsInNode)
	if !runnable.Has(name) {
		return refuse("this node does not run engine %q: it runs %v; install a ledgerd that has "+
			"it on all members first", name, runnable)
	}
	made, err := engineNamed(name)
	if err == nil {
		err = l.driver.takes(made)
	}
	switch config := l.node.home.Config.Ordering; {
	case err != nil:
		return refuse("%v", err)
	case config.Detector == allconcur.DetectorPerfect.String() && !made.Perfect:
		return refuse("%s needs [ordering] detector = %q: set that on all nodes, restart them, "+
			"and try again", name, allconcur.DetectorEventual)
	}
	members := len(l.node.Store().Membership().Members)
	if refusal := refusesSize(name, members); refusal != nil {
		return refuse("%s takes a shard of up to %d nodes, and this one has %d", name,
			made.ServersMax, members)
	}
	ours := settings(l.node.home.Config.Ordering)
	for index := range l.node.peers.table.Load().ids {
		server := order.ServerID(index)
		heard := l.heard(server)
		if heard.at.IsZero() || server == l.node.home.Self || agree(ours, heard.Settings, true) {
			continue
		}
		return refuse("member %d has other settings than this node (%s, not %s): set [ordering] "+
			"%s to the same values on all nodes, restart them, and try again", server,
			heard.Settings, ours, sameSettings)
	}
	return nil
}
