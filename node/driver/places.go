package driver

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// PeerPlaces converts places in the group to places in Config.Peers, in the same order. It returns
// nil for none. It copies.
func (g *Group) PeerPlaces(places []order.ServerID) []order.ServerID {
	if len(places) == 0 {
		return nil
	}
	servers := slices.Clone(places)
	for i, place := range places {
		servers[i] = g.Members[place]
	}
	return servers
}

// Convert changes the servers of A-delivered rounds from places in the group to places in
// Config.Peers. The lists of removed servers are replaced, since an engine may keep its own.
func (g *Group) Convert(deliveries []order.Delivery) {
	for i := range deliveries {
		delivery := &deliveries[i]
		for k := range delivery.Messages {
			message := &delivery.Messages[k]
			message.Origin = g.Members[message.Origin]
		}
		delivery.Removed = g.PeerPlaces(delivery.Removed)
	}
}

// Count adds A-delivered rounds.
func (t *Traffic) Count(deliveries []order.Delivery) {
	t.Rounds += uint64(len(deliveries))
	for i := range deliveries {
		for k := range deliveries[i].Messages {
			if size := len(deliveries[i].Messages[k].Payload); size > 0 {
				t.Messages++
				t.PayloadBytes += uint64(size)
			}
		}
	}
}
