package node

import (
	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/home"
)

// doorsConfig returns what the configuration says about the requests that the node serves.
func doorsConfig(config *home.APIConfig) doors.Config {
	return doors.Config{Listen: config.Listen, Hosts: config.Hosts}
}
