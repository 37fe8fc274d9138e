package dare

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// validConfig is the configuration of the first of some servers.
func validConfig(servers int) Config {
	c := Config{Seats: servers, PayloadMax: 100, LogSlots: 8, Window: 2, Timeout: time.Second,
		Beat: time.Millisecond, Patience: time.Millisecond}
	for i := range servers {
		c.Peers = append(c.Peers, rdmanet.Peer{ID: "x", Incarnation: rdmanet.Incarnation(1 + i)})
	}
	return c
}

func longName(bytes int) rdmanet.PeerID { return rdmanet.PeerID(strings.Repeat("x", bytes)) }

// TestBoundsOfConfigurations takes a valid configuration to each of its bounds, and beyond it.
func TestBoundsOfConfigurations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers         int
		valid, invalid  func(*Config)
		invalidServers  int
		wantedInMessage string
	}{
		"servers": {servers: ServersMax, invalidServers: ServersMax + 1,
			wantedInMessage: "65 servers"},
		"no servers": {servers: 1, invalidServers: 0, wantedInMessage: "0 servers"},
		"few seats": {3, func(c *Config) { c.Seats = 3 }, func(c *Config) { c.Seats = 2 }, 3,
			"2 seats"},
		"many seats": {3, func(c *Config) { c.Seats = ServersMax },
			func(c *Config) { c.Seats = ServersMax + 1 }, 3, "65 seats"},
		"self": {3, func(c *Config) { c.Self = 2 }, func(c *Config) { c.Self = 3 }, 3,
			"server 3"},
		"self of one that joins": {3, func(c *Config) { c.Seats, c.Joins, c.Self = 4, true, 3 },
			func(c *Config) { c.Seats, c.Joins, c.Self = 4, true, 4 }, 3, "server 4"},
		"shard": {3, func(c *Config) { c.Shard = 3 }, func(c *Config) { c.Shard = 2 }, 3,
			"a shard of 2"},
		"seats of a part of a shard": {3, func(c *Config) { c.Shard = 4 },
			func(c *Config) { c.Shard, c.Seats = 4, 4 }, 3, "4 seats"},
		"a joiner in a run with an end": {3, changing,
			func(c *Config) { changing(c); c.Joins = true }, 3, "joins: true"},
		"messages": {3, func(c *Config) { c.MessagesMax = 100 },
			func(c *Config) { c.MessagesMax = 99 }, 3, "99 bytes"},
		"names": {3, func(c *Config) { c.Peers[1].ID = longName(peerIDMax) },
			func(c *Config) { c.Peers[1].ID = longName(peerIDMax + 1) }, 3, "name"},
		"few slots": {3, func(c *Config) { c.LogSlots = 2 }, func(c *Config) { c.LogSlots = 1 }, 3,
			"1 slots"},
		"many slots": {3, func(c *Config) { c.LogSlots = slotsMax },
			func(c *Config) { c.LogSlots = slotsMax + 1 }, 3, "65537 slots"},
		"small window": {3, func(c *Config) { c.Window = 1 }, func(c *Config) { c.Window = 0 }, 3,
			"window of 0"},
		"large window": {3, func(c *Config) { c.Window = slotsMax },
			func(c *Config) { c.Window = slotsMax + 1 }, 3, "window of 65537"},
		"payloads": {3, func(c *Config) { c.PayloadMax = 0 }, func(c *Config) { c.PayloadMax = -1 },
			3, "-1 bytes"},
		"a log that no region has room for": {3, func(c *Config) { c.PayloadMax = 1 << 20 },
			func(c *Config) { c.PayloadMax = 1 << 40 }, 3, "a log of"},
		"timeout": {3, func(c *Config) { c.Timeout = 1 }, func(c *Config) { c.Timeout = 0 }, 3,
			"timeout 0s"},
		"beat": {3, func(c *Config) { c.Beat = 1 }, func(c *Config) { c.Beat = 0 }, 3, "beat 0s"},
		"patience": {3, func(c *Config) { c.Patience = 1 }, func(c *Config) { c.Patience = 0 }, 3,
			"patience 0s"},
	} {
		good, bad := validConfig(c.servers), validConfig(c.invalidServers)
		if c.valid != nil {
			c.valid(&good)
			c.invalid(&bad)
		}
		if err := good.validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err := bad.validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.wantedInMessage) {
			t.Errorf("%s: %v, want %q", name, err, c.wantedInMessage)
		}
	}
}

// TestNewRefuses: a server is made of a valid configuration only.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	c := validConfig(3)
	c.Self = order.ServerID(3)
	if _, err := New(c, nil); !errors.Is(err, ErrConfig) {
		t.Errorf("made, %v", err)
	}
}

// TestOtherSizes checks that servers with the same sizes order without one that has others, and
// that nothing of either gets into the memory of the other.
func TestOtherSizes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"payloads": func(c *Config) { c.PayloadMax = 60 },
		"messages": func(c *Config) { c.MessagesMax = 200 },
		"slots":    func(c *Config) { c.LogSlots = 6 },
		"window":   func(c *Config) { c.Window = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for other := range 3 {
				g := newMixedGroup(t, 1, 3, nil, func(c *Config) {
					if int(c.Self) == other {
						change(c)
					}
				})
				random := rand.New(rand.NewPCG(uint64(other), 1))
				for range 20 {
					for _, s := range g.servers {
						if s.CanBroadcast() {
							if err := s.Broadcast([]byte(name)); err != nil {
								t.Fatal(err)
							}
						}
					}
					g.run(random, time.Millisecond)
				}
				for i, rounds := range g.rounds {
					if orders := len(rounds) > 0; orders != (i != other) {
						t.Errorf("server %d differs, and server %d has %d rounds", other, i,
							len(rounds))
					}
				}
				if g.agree(); g.broken != "" {
					t.Errorf("server %d differs: %s", other, g.broken)
				}
			}
		})
	}
}
