package node

import (
	"fmt"

	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/home"
)

// doorsConfig returns what a home's configuration says about the requests that the node serves.
func (n *Node) doorsConfig(h *home.Home) doors.Config {
	config := &h.Config.API
	return doors.Config{
		Listen: config.Listen, Hosts: config.Hosts, Certificate: h.File(config.Certificate),
		Key: h.File(config.Key), ClientCA: h.File(config.ClientCA), Logger: n.logger,
		Access: doors.Access(config.Access), Identities: h.File(config.Identities),
	}
}

// Reload takes over the settings of the node's home, read again, that may change while the node
// runs: those of its doors. It logs which other settings changed, which the next start takes over.
// If it returns an error, nothing changed.
func (n *Node) Reload(again *home.Home) error {
	config := n.doorsConfig(again)
	config.Listen = n.home.Config.API.Listen // the address stays until the next start
	if err := n.doors.Reload(config); err != nil {
		return fmt.Errorf("%w: %w", home.ErrConfig, err)
	}
	n.logger.Info("the configuration was read again")
	if later := n.home.Config.Restarts(&again.Config); len(later) > 0 {
		n.logger.Warn("changed settings wait for the next start", "settings", later)
	}
	return nil
}
