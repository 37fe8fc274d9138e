package doors

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// Config says which requests a node's listeners serve. The zero value serves requests for loopback
// hosts, without TLS, to every caller.
type Config struct {
	// Listen is the configured address, host:port.
	Listen string
	// Hosts are further names or addresses, without a port, by which clients reach the node.
	Hosts []string
	// Certificate and Key, both or none, are files in PEM; they switch TLS on. They are read again
	// after a change.
	Certificate, Key string
	// ClientCA is a file with the authorities of clients' certificates, in PEM.
	ClientCA string
	// Access says which callers are served. Without it, AccessIdentified if there are Identities,
	// AccessPublic if Listen is a loopback address, and otherwise an error.
	Access Access
	// Identities is the file of those that may call, for AccessIdentified. It is read again after a
	// change.
	Identities string
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Doors decides about requests. Make it with New. It is safe for concurrent use.
type Doors struct {
	current atomic.Pointer[settings]
}

// settings are what one Config came to. They never change.
type settings struct {
	hosts        hosts
	certificates *certificates // nil without TLS
	callers      *callers      // nil if every caller may do everything
}

// New makes the doors of a node. It returns an error that names the wrong setting.
func New(config Config) (*Doors, error) {
	d := new(Doors)
	if err := d.Reload(config); err != nil {
		return nil, err
	}
	return d, nil
}

// Loopback returns the doors of the zero Config.
func Loopback() *Doors {
	d, err := New(Config{})
	if err != nil {
		panic(fmt.Sprintf("doors: the zero Config is wrong: %v", err))
	}
	return d
}

// Reload replaces the settings. If it returns an error, the previous ones stay.
func (d *Doors) Reload(config Config) error {
	next := new(settings)
	var err error
	if next.hosts, err = newHosts(config.Listen, config.Hosts); err != nil {
		return fmt.Errorf("api.hosts: %w", err)
	}
	logger := config.Logger
	if logger == nil {
		logger = slog.Default()
	}
	if next.certificates, err = newCertificates(&config, logger); err != nil {
		return err
	}
	next.callers, err = newCallers(&config, next.certificates != nil, logger)
	if err != nil {
		return err
	}
	if before := d.current.Load(); before != nil &&
		(before.certificates == nil) != (next.certificates == nil) {
		return errors.New("api.certificate: only a start switches TLS on or off")
	}
	d.current.Store(next)
	return nil
}
