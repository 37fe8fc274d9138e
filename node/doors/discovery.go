package doors

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what an issuer can make a node do.
const (
	// discoveryTimeout bounds the time in which an issuer has to answer with its keys.
	discoveryTimeout = 5 * time.Second
	// discoveryBytesMax bounds each of its two answers.
	discoveryBytesMax = 1 << 20
	// keysMax is how many keys of an issuer a node keeps.
	keysMax = 64
	// askEvery is the pause between two questions to an issuer. Strangers can cause questions with
	// keys that do not exist.
	askEvery = time.Minute
	// keysFresh is how long keys are used before the issuer is asked again, and keysGood for how
	// long if it does not answer. An issuer that withdraws a key counts on the first.
	keysFresh = time.Hour
	keysGood  = 24 * time.Hour
)

// discovery has the keys of an issuer that publishes them: OpenID Connect Discovery 1.0. It asks
// when a token needs a key, so that the node starts without its issuers and no goroutine is needed.
type discovery struct {
	issuer string
	client *http.Client
	logger *slog.Logger

	asking sync.Mutex // held by the request that asks

	mu    sync.Mutex
	keys  []publicKey
	got   time.Time // when keys arrived
	asked time.Time // when the issuer was last asked
}

// newDiscovery checks where an issuer publishes its keys. Authority is a file with the authority of
// the issuer's certificate, in PEM, or empty for those of the system.
func newDiscovery(issuer, authority string) (*discovery, error) {
	if _, err := trusted(issuer); err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: discoveryBytesMax}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", authority)
		}
	}
	return &discovery{issuer: issuer, client: &http.Client{Transport: transport,
		Timeout: discoveryTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the issuer sends elsewhere: name the address itself")
		}}, logger: slog.Default()}, nil
}

// trusted returns an address whose answers nobody on the way can change.
func trusted(address string) (*url.URL, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	local := parsed.Scheme == "http" && IsLoopback(parsed.Hostname())
	if parsed.Scheme != "https" && !local || parsed.Host == "" {
		return nil, fmt.Errorf("%q is no https:// address: give the keys as a file with jwks",
			address)
	}
	return parsed, nil
}

// keysFor returns the keys that may have made a signature. It asks the issuer if it has to. While
// another request asks, only tokens that need the answer wait for it.
func (d *discovery) keysFor(id string, now time.Time) []publicKey {
	keys, due := d.known(id, now)
	if !due {
		return keys
	}
	if needed := len(keys) == 0 || id != "" && !hasKey(keys, id); needed {
		d.asking.Lock()
	} else if !d.asking.TryLock() {
		return keys
	}
	defer d.asking.Unlock()
	if _, due := d.known(id, now); due {
		d.ask(now)
	}
	keys, _ = d.known(id, now)
	return keys
}

// known returns the keys that are still good, and reports whether the issuer is to be asked.
func (d *discovery) known(id string, now time.Time) (keys []publicKey, due bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.got) < keysGood {
		keys = d.keys
	}
	wanted := len(keys) == 0 || now.Sub(d.got) >= keysFresh || id != "" && !hasKey(keys, id)
	return keys, wanted && now.Sub(d.asked) >= askEvery
}

func hasKey(keys []publicKey, id string) bool {
	return slices.ContainsFunc(keys, func(k publicKey) bool { return k.id == id })
}

// ask asks the issuer for its keys. If that fails, the present ones stay.
func (d *discovery) ask(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), discoveryTimeout)
	defer cancel()
	keys, err := d.fetch(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = now
	if err != nil {
		d.logger.Warn("the keys of an issuer of tokens could not be fetched; the node asks again "+
			"when a token needs them", "issuer", d.issuer, "error", err)
		return
	}
	d.keys, d.got = keys, now
}

// fetch reads the issuer's description, and the keys that it names.
func (d *discovery) fetch(ctx context.Context) ([]publicKey, error) {
	text, err := d.get(ctx, strings.TrimSuffix(d.issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var described struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &described); err != nil {
		return nil, err
	}
	if described.Issuer != d.issuer {
		return nil, fmt.Errorf("it calls itself %q", described.Issuer)
	}
	if text, err = d.get(ctx, described.Keys); err != nil {
		return nil, err
	}
	keys, err := readKeySet(text)
	if err == nil && len(keys) > keysMax {
		return nil, fmt.Errorf("it has %d keys; at most %d are possible", len(keys), keysMax)
	}
	return keys, err
}

// get reads a document.
func (d *discovery) get(ctx context.Context, address string) ([]byte, error) {
	from, err := trusted(address)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := d.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, discoveryBytesMax+1))
	if err == nil && len(text) > discoveryBytesMax {
		err = fmt.Errorf("%s answers more than %d bytes", address, discoveryBytesMax)
	}
	return text, err
}
