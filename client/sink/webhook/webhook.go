// Package webhook streams entries to a URL: a signed POST request for each entry.
//
// A request is sent until the receiver answers with a status of success, and then its position is
// written to a file, synced, before the next one is sent. A crash in between sends that entry
// again, with the same position. So entries arrive in their order, each at least once, and only the
// last one twice: a receiver that keeps the position of what it took, with its effects, drops what
// is not after it. Verify checks a request's signature.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/ledger"
)

// The headers of a request.
const (
	HeaderPosition  = "Ledgerd-Position"  // SHARD/HEIGHT/INDEX
	HeaderGenesis   = "Ledgerd-Genesis"   // of the shard's chain, in hex
	HeaderBlock     = "Ledgerd-Block"     // the block's hash
	HeaderTime      = "Ledgerd-Time"      // of the block, in milliseconds since 1970
	HeaderID        = "Ledgerd-Id"        // of the entry
	HeaderOutcome   = "Ledgerd-Outcome"   // of the entry
	HeaderSink      = "Ledgerd-Sink"      // the sink's name
	HeaderTimestamp = "Ledgerd-Timestamp" // when the request was signed, in seconds since 1970
	HeaderSignature = "Ledgerd-Signature" // v1= and the signature in hex
)

// signed are the headers that the signature covers, in this order.
var signed = []string{HeaderTimestamp, HeaderSink, HeaderGenesis, HeaderPosition, HeaderBlock,
	HeaderTime, HeaderID, HeaderOutcome}

const (
	signatureVersion = "v1="
	minSecret        = 16
	// maxAnswer bounds what is read of an answer, and maxRetryAfter the pause that it asks for.
	maxAnswer     = 4 << 10
	maxRetryAfter = 5 * time.Minute
)

// Config says where to send.
type Config struct {
	URL    string
	Secret []byte // of the signatures, at least 16 bytes
	// Folder has the positions, a file for each shard. It is made.
	Folder string
	// Timeout bounds a request; default 15 s. Tries is how often a request is sent before the
	// stream pauses and begins again; default 5. Backoff is the pause after the first try. It
	// doubles, up to 30 s; default 500 ms.
	Timeout time.Duration
	Tries   int
	Backoff time.Duration
	TLS     *tls.Config
	// AllowHTTP allows a URL without TLS on another machine.
	AllowHTTP bool
	Sink      string // its name
}

// New returns the target.
func New(config Config) (sink.Target, error) {
	parsed, err := url.Parse(config.URL)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errors.New("webhook: url: write one as https://books.example/ledger")
	}
	if parsed.User != nil {
		return nil, errors.New("webhook: url: it must have no password: the signature tells the " +
			"receiver who sends")
	}
	if parsed.Scheme == "http" && !loopback(parsed.Hostname()) && !config.AllowHTTP {
		return nil, errors.New("webhook: url: entries would be readable on the way: use " +
			"https://, or set allow_http")
	}
	if len(config.Secret) < minSecret {
		return nil, fmt.Errorf("webhook: the secret has %d bytes, and needs at least %d: make one "+
			"with `openssl rand -hex 32`", len(config.Secret), minSecret)
	}
	if config.Folder == "" {
		return nil, errors.New("webhook: no folder: name one for the positions")
	}
	if config.Timeout == 0 {
		config.Timeout = 15 * time.Second
	}
	if config.Tries == 0 {
		config.Tries = 5
	}
	if config.Backoff == 0 {
		config.Backoff = 500 * time.Millisecond
	}
	if config.Timeout < 0 || config.Tries < 1 || config.Backoff < 0 {
		return nil, errors.New("webhook: timeout, tries and backoff have to be above zero")
	}
	return &target{config: config, client: &http.Client{
		Timeout: config.Timeout,
		Transport: &http.Transport{TLSClientConfig: config.TLS, ForceAttemptHTTP2: true,
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64,
			IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second},
		// A redirect would send what was signed to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}, nil
}

func loopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

type target struct {
	config Config
	client *http.Client
	// between is called after a request succeeded and before its position is written; tests only.
	between func() error
}

func (t *target) Close() error {
	t.client.CloseIdleConnections()
	return nil
}

// KeepsMarks implements sink.Target: the mark is apart from the records.
func (t *target) KeepsMarks() bool { return true }

// Open takes the stream's file.
func (t *target) Open(_ context.Context, chain sink.Chain) (sink.Lane, error) {
	if err := os.MkdirAll(t.config.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	file, err := openPositions(filepath.Join(t.config.Folder,
		fmt.Sprintf("shard-%d.json", chain.Shard)), t.config.Sink)
	if err != nil {
		return nil, err
	}
	if err := file.probe(); err != nil {
		return nil, errors.Join(err, file.close())
	}
	return &lane{target: t, positions: file}, nil
}

type lane struct {
	target    *target
	positions *positions
}

func (l *lane) Close() error { return l.positions.close() }

func (l *lane) Mark(context.Context) (*sink.Mark, error) { return l.positions.read() }

// Write sends one record after the other, and keeps the position after each.
func (l *lane) Write(ctx context.Context, batch *sink.Batch) error {
	for i := range batch.Records {
		record := &batch.Records[i]
		if err := l.deliver(ctx, record); err != nil {
			return err
		}
		if l.target.between != nil {
			if err := l.target.between(); err != nil {
				return err
			}
		}
		if err := l.positions.write(&record.Mark); err != nil {
			return err
		}
	}
	if len(batch.Records) > 0 && batch.Records[len(batch.Records)-1].Mark == batch.Through {
		return nil
	}
	return l.positions.write(&batch.Through)
}

// deliver sends a record until the receiver has it, or it was tried often enough.
func (l *lane) deliver(ctx context.Context, record *sink.Record) error {
	pause := l.target.config.Backoff
	for try := 1; ; try++ {
		after, err := l.post(ctx, record)
		if err == nil || errors.Is(err, sink.ErrRefused) {
			return err
		}
		if ctx.Err() != nil || try == l.target.config.Tries {
			return fmt.Errorf("webhook: %s: %w", record.Position, err)
		}
		timer := time.NewTimer(max(pause, after))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("webhook: %s: %w", record.Position, err)
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// post sends a record once. After is the pause that the receiver asks for.
func (l *lane) post(ctx context.Context, record *sink.Record) (after time.Duration, err error) {
	config := &l.target.config
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, config.URL,
		bytes.NewReader(record.Line))
	if err != nil {
		return 0, err
	}
	for name, value := range map[string]string{
		"Content-Type":  "application/json",
		"User-Agent":    "ledgerd-sink",
		HeaderPosition:  record.Position.String(),
		HeaderGenesis:   record.Genesis.String(),
		HeaderBlock:     record.Block.String(),
		HeaderTime:      strconv.FormatUint(uint64(record.Time), 10),
		HeaderID:        record.ID.String(),
		HeaderOutcome:   record.Outcome,
		HeaderSink:      config.Sink,
		HeaderTimestamp: strconv.FormatInt(time.Now().Unix(), 10),
	} {
		request.Header.Set(name, value)
	}
	request.Header.Set(HeaderSignature, signatureVersion+hex.EncodeToString(
		sign(config.Secret, request.Header, record.Line)))
	answer, err := l.target.client.Do(request)
	if err != nil {
		// It has the URL, whose query may have a secret.
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err
		}
		return 0, fmt.Errorf("POST to %s: %w", request.URL.Host, err)
	}
	// What is read lets the connection be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer))
	if err := answer.Body.Close(); err != nil && answer.StatusCode/100 != 2 {
		return 0, err
	}
	switch {
	case answer.StatusCode/100 == 2:
		return 0, nil
	case answer.StatusCode/100 == 3:
		return 0, sink.Refuse("webhook: the receiver redirects (%s) to %q: put the new URL into "+
			"the configuration if you trust it", answer.Status, answer.Header.Get("Location"))
	}
	if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31); err == nil {
		after = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return after, fmt.Errorf("the receiver answers %s", answer.Status)
}

// sign returns the HMAC-SHA256 of the signed headers, a line each, and the body.
func sign(secret []byte, header http.Header, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, name := range signed {
		_, _ = io.WriteString(mac, header.Get(name)+"\n") // never fails
	}
	mac.Write(body)
	return mac.Sum(nil)
}

// ErrSignature reports a request that the sink did not sign, or not now.
var ErrSignature = errors.New("webhook: the signature is wrong or too old")

// Verify checks the signature of a request with this body, and that it was made at most so long
// before or after now. It returns the mark of the record.
func Verify(secret []byte, header http.Header, body []byte, now time.Time,
	tolerance time.Duration) (sink.Mark, error) {
	text, versioned := strings.CutPrefix(header.Get(HeaderSignature), signatureVersion)
	given, err := hex.DecodeString(text)
	if !versioned || err != nil || !hmac.Equal(given, sign(secret, header, body)) {
		return sink.Mark{}, ErrSignature
	}
	seconds, err := strconv.ParseInt(header.Get(HeaderTimestamp), 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return sink.Mark{}, ErrSignature
	}
	position, err := sink.ParsePosition(header.Get(HeaderPosition))
	genesis, failed := ledger.ParseHash(header.Get(HeaderGenesis))
	block, bad := ledger.ParseHash(header.Get(HeaderBlock))
	return sink.Mark{Position: position, Genesis: genesis, Block: block},
		errors.Join(err, failed, bad)
}
