package doors

import (
	"fmt"
	"sync/atomic"
)

// Config says which requests a node's listeners serve. The zero value serves requests for loopback
// hosts.
type Config struct {
	// Listen is the configured address, host:port.
	Listen string
	// Hosts are further names or addresses, without a port, by which clients reach the node.
	Hosts []string
}

// Doors decides about requests. Make it with New. It is safe for concurrent use.
type Doors struct {
	current atomic.Pointer[settings]
}

// settings are what one Config came to. They never change.
type settings struct {
	hosts hosts
}

// New makes the doors of a node. It returns an error that names the wrong setting.
func New(config Config) (*Doors, error) {
	d := new(Doors)
	if err := d.Reload(config); err != nil {
		return nil, err
	}
	return d, nil
}

// Reload replaces the settings. If it returns an error, the previous ones stay.
func (d *Doors) Reload(config Config) error {
	next := new(settings)
	var err error
	if next.hosts, err = newHosts(config.Listen, config.Hosts); err != nil {
		return fmt.Errorf("api.hosts: %w", err)
	}
	d.current.Store(next)
	return nil
}
