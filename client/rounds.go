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
// would have another view.
func (c *Client) WatchRounds(ctx context.Context,
	handle func(*ledgerdv1.Recording) error) error {
	at := c.at(0)
	stream, err := c.services[at].WatchRounds(ctx,
		connect.NewRequest(&ledgerdv1.WatchRoundsRequest{}))
	if err != nil {
		return c.explain(ctx, c.urls[at], err)
	}
	defer func() { _ = stream.Close() }() // Err has the reason of the end
	for stream.Receive() {
		if err := handle(stream.Msg().GetRecording()); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = stream.Err()
	if err == nil {
		err = errEnded
	}
	return c.explain(ctx, c.urls[at], err)
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
