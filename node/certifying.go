package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/certification"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// errNoPeer reports that no other member could be asked for certificates.
var errNoPeer = errors.New("no other member")

// newCertifier makes the certifier of this node's chain.
func (n *Node) newCertifier() *certification.Certifier {
	var turn atomic.Uint32
	return certification.New(certification.Config{
		Self: ledger.MemberIndex(n.home.Self), Key: n.home.Key,
		Chain: func() certification.Chain { return n.pipeline.Store() },
		Send:  n.sendStatement,
		Fetch: func(ctx context.Context, above ledger.Height) ([]*ledger.Certificate, error) {
			peers := n.otherPeers()
			if len(peers) == 0 {
				return nil, errNoPeer
			}
			return n.exchange.FetchCertificates(ctx, peers[int(turn.Add(1))%len(peers)], above)
		},
		Found: n.foundEvidence, Forked: n.forked, Logger: n.logger,
	})
}

// otherPeers returns the other members on the fabric.
func (n *Node) otherPeers() []rdmanet.PeerID {
	var peers []rdmanet.PeerID
	for server, id := range n.peers.table.Load().ids {
		if id != "" && order.ServerID(server) != n.home.Self {
			peers = append(peers, id)
		}
	}
	return peers
}

// sendStatement sends an encoded statement to the other members.
func (n *Node) sendStatement(statement []byte) {
	for _, peer := range n.otherPeers() {
		if err := n.control.Send(peer, wire.KindStatement, statement); err != nil {
			n.logger.Debug("statement not sent", "peer", peer, "error", err)
		}
	}
}

// onStatement is called on each statement of a member.
func (l *life) onStatement(from rdmanet.Peer, payload []byte) {
	if server, known := l.senderOf(from); known {
		l.node.certifier.Heard(ledger.MemberIndex(server), payload)
	}
}

// foundEvidence reports new evidence.
func (n *Node) foundEvidence(e *ledger.Evidence) {
	n.logger.Error("evidence: two signed accounts of one block cannot both be true; "+
		"`ledgerd evidence` prints them", "height", e.Height(), "members", e.Members(), "first",
		e.First.Hash, "second", e.Second.Hash)
}

// forked stops this node: a majority certified another block than a durable one of this chain.
func (n *Node) forked(e *ledger.Evidence) {
	n.fail(fmt.Errorf("%w: a majority of the members certified another block %d than the "+
		"durable one here. Nothing is set aside here. Stop all nodes, keep all homes, and compare "+
		"`ledgerd evidence` and `ledgerd verify` of all nodes", shard.ErrFork, e.Height()))
}

// certificationMetrics returns the metrics of certificates.
func (n *Node) certificationMetrics() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "ledgerd", Name: name,
			Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("certified_height", "The highest block that a majority of the members certified.",
			func() float64 { return float64(n.Store().CertifiedHeight()) }),
		gauge("evidence", "Pieces of evidence against members: two signed accounts of one block.",
			func() float64 { return float64(n.Store().EvidenceCount()) }),
	}
}
