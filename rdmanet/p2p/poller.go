package p2p

import (
	"errors"
	"io"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
)

// ReceivePrompt implements rdmanet.PromptHost. On systems without a poller, and with
// Options.NoPoller, the receiver's lanes are read like all others.
func (h *Host) ReceivePrompt(name string, receiver rdmanet.PromptReceiver) error {
	if h.poller == nil {
		return h.lanes.Receive(name, receiver.Receive, false)
	}
	return h.lanes.ReceivePrompt(name, receiver)
}

// feedPrompt feeds a lane with a prompt receiver from the poller until the connection ends. While
// the receiver is full, this goroutine feeds it, and the poller does not read the connection.
func (s *inboundStream) feedPrompt(conn *directConn, plain *descriptor) error {
	stream := io.Reader(plain)
	if conn.opener != nil {
		stream = openedReader{conn.opener, plain}
	}
	poller, prompt, feeder := s.host.poller, s.inbound.Prompt(), lane.NewFeeder(s.inbound, stream)
	s.polled.Store(true)
	poll := func() (tried bool, err error) {
		tried, err = feeder.Poll()
		s.acknowledgePressing()
		return tried, err
	}
	for {
		err := poller.serve(plain, prompt, poll)
		if errors.Is(err, lane.ErrFull) {
			err = feeder.Wait()
			s.acknowledgePressing()
		}
		if errors.Is(err, lane.ErrSealed) {
			// Closing a connection with unread bytes could destroy the goodbye. Read until the peer
			// hangs up.
			_ = poller.serve(plain, nil, func() (bool, error) { return false, discard(plain) })
		}
		if err != nil {
			return err
		}
	}
}

// discard reads what has arrived.
func discard(stream io.Reader) error {
	var scratch [readAhead]byte
	for {
		if _, err := stream.Read(scratch[:]); errors.Is(err, lane.ErrNotYet) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
