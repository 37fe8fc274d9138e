package signer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/ledgerd/ledgerd/ledger"
)

// AnswerTime is the time that an external signer has for an answer. A person may have to agree.
const AnswerTime = 2 * time.Minute

// stopTime is the time after which a command that was killed is not waited for: its children may
// hold its output open.
const stopTime = time.Second

// Remote says how to reach an external signer: by a command with its arguments, or by a socket.
type Remote struct {
	Command []string
	Socket  string
}

// ErrRemote means that a Remote names no external signer.
var ErrRemote = errors.New("signer: no external signer")

// Bounds of a Remote.
const (
	argumentsMax     = 32
	argumentBytesMax = 1024
)

// Validate returns ErrRemote unless the Remote has either a command or a socket, with absolute
// paths.
func (r Remote) Validate() error {
	if (len(r.Command) > 0) == (r.Socket != "") {
		return fmt.Errorf("%w: it needs either a command or a socket", ErrRemote)
	}
	path := r.Socket
	if path == "" {
		path = r.Command[0]
	}
	if strings.ContainsFunc(r.Socket, unicode.IsControl) {
		return fmt.Errorf("%w: %.64q has a control character", ErrRemote, r.Socket)
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%w: %.64q is no absolute path", ErrRemote, path)
	}
	if len(r.Command) > argumentsMax {
		return fmt.Errorf("%w: a command has at most %d words", ErrRemote, argumentsMax)
	}
	for _, word := range append(r.Command[:len(r.Command):len(r.Command)], r.Socket) {
		if len(word) > argumentBytesMax {
			return fmt.Errorf("%w: a word has at most %d bytes", ErrRemote, argumentBytesMax)
		}
	}
	return nil
}

// String returns the socket's path, or the command's.
func (r Remote) String() string {
	if r.Socket != "" {
		return r.Socket
	}
	return r.Command[0]
}

// PublicKey asks an external signer for the key that signs for an organisation.
func (r Remote) PublicKey(ctx context.Context, organisation ledger.OrganisationName) (
	ledger.PublicKey, error) {
	e, err := NewExternal(r, ledger.PublicKey{})
	if err != nil {
		return ledger.PublicKey{}, err
	}
	defer e.Close()
	key, _, err := e.ask(ctx, &Request{Message: Message{Organisation: organisation}})
	return key, err
}

// External is an external signer. Its methods may be called concurrently.
type External struct {
	remote Remote
	public ledger.PublicKey
	turn   chan struct{} // holds one token while no request is under way
	conn   *connection   // of a socket; nil before the first request and after a failure
}

// NewExternal returns the external signer of a public key. It does not call it yet.
func NewExternal(remote Remote, public ledger.PublicKey) (*External, error) {
	if err := remote.Validate(); err != nil {
		return nil, err
	}
	e := &External{remote: remote, public: public, turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	return e, nil
}

// Public returns the public key.
func (e *External) Public() ledger.PublicKey { return e.public }

// Sign has the external signer sign, and verifies its signature.
func (e *External) Sign(ctx context.Context, message Message) (ledger.SignatureBytes, error) {
	_, signature, err := e.ask(ctx, &Request{Sign: true, Key: e.public, Message: message})
	if err == nil {
		err = check(e.public, message.Bytes, signature)
	}
	if err != nil {
		return ledger.SignatureBytes{}, fmt.Errorf("%s: %w", e.remote, err)
	}
	return signature, nil
}

// Test has the external signer sign something that is good for nothing.
func (e *External) Test(ctx context.Context, organisation ledger.OrganisationName) error {
	_, err := e.Sign(ctx, testMessage(organisation))
	return err
}

// Close closes the connection to a socket. The signer can be used again: it makes another one.
func (e *External) Close() {
	<-e.turn
	e.drop()
	e.turn <- struct{}{}
}

func (e *External) drop() {
	if e.conn != nil {
		_ = e.conn.Close() // nothing is under way
		e.conn = nil
	}
}

// ask sends a request and returns the answer.
func (e *External) ask(ctx context.Context, request *Request) (key ledger.PublicKey,
	signature ledger.SignatureBytes, err error) {
	line, err := request.encode()
	if err != nil {
		return key, signature, err
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	select {
	case <-e.turn:
	case <-ctx.Done():
		return key, signature, ctx.Err()
	}
	defer func() { e.turn <- struct{}{} }()
	var answer []byte
	if e.remote.Socket != "" {
		answer, err = e.call(ctx, line)
	} else {
		answer, err = run(ctx, e.remote.Command, line)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("it gave no answer in time: %w", ctx.Err())
	}
	if err != nil {
		return key, signature, fmt.Errorf("%w: %w", ErrExternal, err)
	}
	return decodeAnswer(answer, request.Sign)
}

var errLongAnswer = fmt.Errorf("its answer has more than %d bytes", answerBytesMax)

// run runs a command for one request. The answer is all that it writes.
func run(ctx context.Context, words []string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	answer := &answerBuffer{full: cancel}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(request), answer, os.Stderr
	command.WaitDelay = stopTime
	err := command.Run()
	if answer.overflowed {
		return nil, errLongAnswer
	}
	if err != nil && ctx.Err() == nil && isRefusal(answer.text) {
		return answer.text, nil // it says why
	}
	if err != nil {
		return nil, fmt.Errorf("the command ended badly: %w", err)
	}
	return answer.text, nil
}

// answerBuffer keeps at most answerBytesMax bytes, and stops the command that writes more. It does
// not embed a bytes.Buffer, whose ReadFrom io.Copy prefers to Write.
type answerBuffer struct {
	text       []byte
	full       func()
	overflowed bool
}

func (b *answerBuffer) Write(data []byte) (int, error) {
	if len(b.text)+len(data) > answerBytesMax {
		b.overflowed = true
		b.full()
		return 0, errLongAnswer
	}
	b.text = append(b.text, data...)
	return len(data), nil
}

// connection is a connection to a socket.
type connection struct {
	net.Conn
	reader *bufio.Reader
}

// call sends a request to the socket and returns the answer's line.
func (e *External) call(ctx context.Context, request []byte) ([]byte, error) {
	for {
		old := e.conn != nil
		if !old {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", e.remote.Socket)
			if err != nil {
				return nil, err
			}
			e.conn = &connection{conn, bufio.NewReaderSize(conn, answerBytesMax)}
		}
		answer, err := e.conn.exchange(ctx, request)
		if err == nil {
			return answer, nil
		}
		e.drop()
		if broken := (*brokenError)(nil); !old || !errors.As(err, &broken) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// brokenError is the error of a connection that broke before any of the answer came.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// exchange sends a request and reads the line of the answer.
func (c *connection) exchange(ctx context.Context, request []byte) ([]byte, error) {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, &brokenError{err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(request); err != nil {
		return nil, &brokenError{err}
	}
	line, err := c.reader.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errLongAnswer
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, errors.New("it closed the connection within its answer")
	case err != nil && len(line) == 0:
		return nil, &brokenError{fmt.Errorf("it closed the connection without an answer: %w", err)}
	case err != nil:
		return nil, err
	case c.reader.Buffered() > 0:
		return nil, errors.New("it sent more than one answer")
	}
	return bytes.Clone(line), nil
}
