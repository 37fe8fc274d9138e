package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// roundsAlive is how often a node sends a message to those who watch its rounds, also if nothing
// happens.
const roundsAlive = 10 * time.Second

// errRoundsSilent means that a node sends nothing of its rounds, although it should.
var errRoundsSilent = connect.NewError(connect.CodeUnavailable, errors.New("the node sends "+
	"nothing of its rounds any more"))

// recordingFormat is the version of recordings that this package reads.
const recordingFormat = 1

// ErrRecording reports bytes that are not a recording of rounds.
var ErrRecording = errors.New("client: not a recording of rounds")

// Rounds returns what the node recorded of its rounds: the newest events, at most so many (0: the
// node's default). With a duration the node records for so long first, and returns these events.
func (c *Client) Rounds(ctx context.Context, last int,
	duration time.Duration) (*ledgerdv1.Recording, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetRoundsRequest{Last: uint32(max(last, 0)),
		ForMs: uint32(max(duration.Milliseconds(), 0))}, service.GetRounds)
	return answer.GetRecording(), err
}

// WatchRounds passes what happens in the rounds of one node to handle, until ctx ends or handle
// fails. The first recording has everything but events. It does not go on at another node, which
// would have another view, and ends with an error if the node sends nothing for the time of a call
// longer than it should.
func (c *Client) WatchRounds(ctx context.Context,
	handle func(*ledgerdv1.Recording) error) error {
	return c.watchRounds(ctx, c.options.CallTime+roundsAlive, handle)
}

// watchRounds is WatchRounds that waits so long for a message after the first one.
func (c *Client) watchRounds(ctx context.Context, patience time.Duration,
	handle func(*ledgerdv1.Recording) error) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(c.options.CallTime, cancel)
	defer timer.Stop()
	at := c.at(0)
	failed := func(err error) error {
		if _, ends := ctx.Deadline(); ends && connect.CodeOf(err) == connect.CodeDeadlineExceeded {
			<-ctx.Done() // the node knows the deadline, and may be a moment earlier
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case watching.Err() != nil:
			err = errRoundsSilent
		}
		return c.explain(ctx, c.urls[at], err)
	}
	stream, err := c.services[at].WatchRounds(watching,
		connect.NewRequest(&ledgerdv1.WatchRoundsRequest{}))
	if err != nil {
		return failed(err)
	}
	defer func() { _ = stream.Close() }() // Err has the reason of the end
	for stream.Receive() {
		timer.Stop() // handle takes what time it takes
		if err := handle(stream.Msg().GetRecording()); err != nil {
			return err
		}
		timer.Reset(patience)
	}
	if err = stream.Err(); err == nil {
		err = errEnded
	}
	return failed(err)
}

// EncodeRecording returns a recording as JSON, as the explorer reads it.
func EncodeRecording(recording *ledgerdv1.Recording) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(recording)
	if err != nil {
		return nil, fmt.Errorf("client: encode a recording: %w", err)
	}
	var even bytes.Buffer // protojson varies its spaces
	if err := json.Compact(&even, text); err != nil {
		return nil, fmt.Errorf("client: encode a recording: %w", err)
	}
	return even.Bytes(), nil
}

// DecodeRecording reads what EncodeRecording or the explorer wrote. It refuses unknown fields. An
// error wraps ErrRecording.
func DecodeRecording(text []byte) (*ledgerdv1.Recording, error) {
	recording := &ledgerdv1.Recording{}
	if err := protojson.Unmarshal(text, recording); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecording, err)
	}
	if recording.Format != recordingFormat {
		return nil, fmt.Errorf("%w: format %d, this program reads %d", ErrRecording,
			recording.Format, recordingFormat)
	}
	return recording, nil
}
