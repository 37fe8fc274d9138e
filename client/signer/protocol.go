package signer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrExternal means that an external signer did not sign: it refused, does not answer in time, or
// answered something else than a good signature. The error says which.
var ErrExternal = errors.New("the external signer gave no signature")

// ErrRequest means that a request to an external signer is none, or contradicts itself.
var ErrRequest = errors.New("signer: bad request")

const (
	protocolVersion = 1
	answerBytesMax  = 16 << 10
	requestBytesMax = 2*ledger.MaxBundleBytes + 16<<10
	// reasonBytesMax bounds what is shown of a signer's own error.
	reasonBytesMax = 300
)

// The requests of the protocol.
const (
	requestPublicKey = "public_key"
	requestSign      = "sign"
)

// Request is a request to an external signer.
type Request struct {
	// Sign asks for a signature of Message by Key. Otherwise the request is for the public key that
	// signs for Message.Organisation, and nothing else is set.
	Sign    bool
	Key     ledger.PublicKey
	Message Message
}

// requestLine is a request as JSON.
type requestLine struct {
	Version      int                     `json:"version"`
	Request      string                  `json:"request"`
	Organisation ledger.OrganisationName `json:"organisation"`
	Key          string                  `json:"public_key,omitempty"`
	Kind         Kind                    `json:"kind,omitempty"`
	Message      string                  `json:"message,omitempty"`
	Bundle       string                  `json:"bundle,omitempty"`
}

// answerLine is an answer as JSON.
type answerLine struct {
	Key       string `json:"public_key,omitempty"`
	Signature string `json:"signature,omitempty"`
	Error     string `json:"error,omitempty"`
}

// encode returns the request's line, with its end.
func (r *Request) encode() ([]byte, error) {
	line := requestLine{Version: protocolVersion, Request: requestPublicKey,
		Organisation: r.Message.Organisation}
	if r.Sign {
		line.Request, line.Key, line.Kind = requestSign, r.Key.String(), r.Message.Kind
		line.Message = hex.EncodeToString(r.Message.Bytes)
		line.Bundle = hex.EncodeToString(r.Message.Bundle)
	}
	text, err := json.Marshal(line)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	return append(text, '\n'), nil
}

// DecodeRequest decodes a request's line, or returns ErrRequest.
func DecodeRequest(line []byte) (*Request, error) {
	wrong := func(format string, arguments ...any) (*Request, error) {
		return nil, fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, arguments...))
	}
	if len(line) > requestBytesMax {
		return wrong("it has more than %d bytes", requestBytesMax)
	}
	var text requestLine
	if err := json.Unmarshal(line, &text); err != nil {
		return wrong("%w", err)
	}
	if text.Version != protocolVersion {
		return wrong("it is of version %d of the protocol, and this is version %d", text.Version,
			protocolVersion)
	}
	if text.Organisation != ledger.Operator {
		if err := text.Organisation.Validate(); err != nil {
			return wrong("%w", err)
		}
	}
	request := &Request{Sign: text.Request == requestSign,
		Message: Message{Organisation: text.Organisation}}
	if text.Request == requestPublicKey {
		return request, nil
	}
	if !request.Sign {
		return wrong("there is no request %.32q", text.Request)
	}
	var err error
	if request.Key, err = ledger.ParsePublicKey(text.Key); err != nil {
		return wrong("public_key: %w", err)
	}
	request.Message.Kind = text.Kind
	if request.Message.Bytes, err = hex.DecodeString(text.Message); err != nil {
		return wrong("message: %w", err)
	}
	if request.Message.Bundle, err = hex.DecodeString(text.Bundle); err != nil {
		return wrong("bundle: %w", err)
	}
	return request, nil
}

// Check checks that the message is of its kind and, for a bundle, that it is the message of the
// bundle that the request shows, which Check returns. A signer must not sign a request that fails
// the check.
func (r *Request) Check() (*ledger.Bundle, error) {
	switch message := &r.Message; message.Kind {
	case KindTest:
		if len(message.Bytes) != len(testDomain)+32 || len(message.Bundle) > 0 ||
			!bytes.HasPrefix(message.Bytes, []byte(testDomain)) {
			return nil, fmt.Errorf("%w: it is no test message", ErrRequest)
		}
		return nil, nil
	case KindBundle:
		bundle, err := ledger.DecodeBundle(message.Bundle)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequest, err)
		}
		if !bytes.Equal(message.Bytes, bundle.SigningMessage()) {
			return nil, fmt.Errorf("%w: the message is not that of the bundle", ErrRequest)
		}
		return bundle, nil
	default:
		return nil, fmt.Errorf("%w: there is no kind %.32q", ErrRequest, message.Kind)
	}
}

// decodeAnswer decodes an answer, or returns ErrExternal. The answer to a request for the public
// key has a key, and the answer to a request to sign has a signature.
func decodeAnswer(line []byte, sign bool) (key ledger.PublicKey, signature ledger.SignatureBytes,
	err error) {
	var text answerLine
	if err := json.Unmarshal(line, &text); err != nil {
		return key, signature, fmt.Errorf("%w: its answer is no JSON object: %w", ErrExternal, err)
	}
	switch {
	case text.Error != "":
		return key, signature, fmt.Errorf("%w: it says %q", ErrExternal,
			text.Error[:min(len(text.Error), reasonBytesMax)])
	case sign:
		if err := signature.UnmarshalText([]byte(text.Signature)); err != nil {
			return key, signature, fmt.Errorf("%w: its answer has no signature: %w", ErrExternal,
				err)
		}
	default:
		if key, err = ledger.ParsePublicKey(text.Key); err != nil {
			return key, signature, fmt.Errorf("%w: its answer has no public key: %w", ErrExternal,
				err)
		}
	}
	return key, signature, nil
}

// isRefusal reports whether an answer has the signer's own error.
func isRefusal(line []byte) bool {
	var text answerLine
	return json.Unmarshal(line, &text) == nil && text.Error != ""
}

// Serve is the loop of an external signer: it answers the requests on a connection, or on a
// command's standard input, with the signer that find returns for an organisation, until the input
// or the context ends. It signs only requests that pass Check and are for the signer's key. Before
// it signs a bundle it calls show, unless that is nil; an error of show refuses the request.
func Serve(ctx context.Context, in io.Reader, out io.Writer,
	find func(ledger.OrganisationName) (Signer, error),
	show func(*Request, *ledger.Bundle) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), requestBytesMax)
	encoder := json.NewEncoder(out)
	for ctx.Err() == nil && lines.Scan() {
		answer, err := answerTo(ctx, lines.Bytes(), find, show)
		if err != nil {
			answer = answerLine{Error: err.Error()}
		}
		if err := encoder.Encode(answer); err != nil {
			return fmt.Errorf("signer: answering: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("signer: reading a request: %w", err)
	}
	return ctx.Err()
}

func answerTo(ctx context.Context, line []byte,
	find func(ledger.OrganisationName) (Signer, error),
	show func(*Request, *ledger.Bundle) error) (answerLine, error) {
	request, err := DecodeRequest(line)
	if err != nil {
		return answerLine{}, err
	}
	by, err := find(request.Message.Organisation)
	if err != nil {
		return answerLine{}, err
	}
	if !request.Sign {
		return answerLine{Key: by.Public().String()}, nil
	}
	bundle, err := request.Check()
	if err != nil {
		return answerLine{}, err
	}
	if by.Public() != request.Key {
		return answerLine{}, fmt.Errorf("this is not the signer of the key %s", request.Key)
	}
	if bundle != nil && show != nil {
		if err := show(request, bundle); err != nil {
			return answerLine{}, err
		}
	}
	signature, err := by.Sign(ctx, request.Message)
	if err != nil {
		return answerLine{}, err
	}
	return answerLine{Signature: signature.String()}, nil
}
