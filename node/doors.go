package node

import (
	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/home"
)

// doorsConfig returns what a home's configuration says about the requests that the node serves.
func (n *Node) doorsConfig(h *home.Home) doors.Config {
	config := &h.Config.API
	return doors.Config{
		Listen: config.Listen, Hosts: config.Hosts, Certificate: h.File(config.Certificate),
		Key: h.File(config.Key), ClientCA: h.File(config.ClientCA), Logger: n.logger,
	}
}
