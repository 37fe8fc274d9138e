package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/ledgerd/ledgerd/node/doors"
)

// DoorReason says why a node let no call in.
type DoorReason int

// The reasons of a DoorError.
const (
	DoorWantsHTTPS       DoorReason = iota + 1 // the address serves TLS, and was called without
	DoorWantsHTTP                              // the address serves no TLS
	DoorUnknownAuthority                       // no known authority signed the node's certificate
	DoorWrongName                              // the node's certificate is for other names
	DoorBadCertificate                         // the node's certificate has expired, for example
	DoorWantsCertificate                       // the node refused the client's certificate
)

// DoorError means that something answers at an address, but no call could be made. Asking again
// does not help.
type DoorError struct {
	Address string
	Reason  DoorReason
	err     error
}

// Error implements error.
func (e *DoorError) Error() string {
	switch e.Reason {
	case DoorWantsHTTPS:
		return fmt.Sprintf("%s serves TLS: use https://%s", e.Address, hostPort(e.Address))
	case DoorWantsHTTP:
		return fmt.Sprintf("%s serves no TLS: use http://%s", e.Address, hostPort(e.Address))
	case DoorUnknownAuthority:
		return fmt.Sprintf("the certificate of %s is signed by an authority that is not trusted "+
			"here (%v)", e.Address, e.err)
	case DoorWrongName:
		return fmt.Sprintf("the certificate of %s is for other names: %v", e.Address, e.err)
	case DoorWantsCertificate:
		return fmt.Sprintf("%s does not accept the certificate of this client: %v", e.Address,
			e.err)
	default:
		return fmt.Sprintf("the certificate of %s is not valid: %v", e.Address, e.err)
	}
}

// Unwrap returns the error of the transport.
func (e *DoorError) Unwrap() error { return e.err }

func hostPort(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	return rest
}

// errWantsHTTPS is the answer of a node that serves TLS to a plain request.
var errWantsHTTPS = errors.New("the address serves TLS")

// exposes reports whether others can read what is sent to an address.
func exposes(address string) bool {
	parsed, err := url.Parse(address)
	return err != nil || parsed.Scheme != "https" && !doors.IsLoopback(parsed.Hostname())
}

// door is a transport that shows a token and recognises such an answer.
type door struct {
	*http.Transport
	token  string
	stream bool // its calls stream messages to the node
}

// RoundTrip implements http.RoundTripper.
func (d *door) RoundTrip(request *http.Request) (*http.Response, error) {
	if d.token != "" {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+d.token)
	}
	if d.stream && request.Body != nil {
		request = request.WithContext(request.Context())
		request.Body = &wholeMessages{ReadCloser: request.Body}
	}
	answer, err := d.Transport.RoundTrip(request)
	if err == nil && answer.Header.Get(doors.HeaderScheme) == "https" &&
		request.URL.Scheme == "http" {
		_ = answer.Body.Close()
		return nil, errWantsHTTPS
	}
	return answer, err
}

// doorError returns the DoorError that a transport's error means, or nil if it means none.
func doorError(address string, err error) *DoorError {
	found := &DoorError{Address: address, err: err}
	unknown, wrongName := x509.UnknownAuthorityError{}, x509.HostnameError{}
	failed, record := (*tls.CertificateVerificationError)(nil), tls.RecordHeaderError{}
	switch {
	case errors.Is(err, errWantsHTTPS):
		found.Reason = DoorWantsHTTPS
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		found.Reason = DoorWantsHTTP
	case errors.As(err, &unknown):
		found.Reason, found.err = DoorUnknownAuthority, unknown
	case errors.As(err, &wrongName):
		found.Reason, found.err = DoorWrongName, wrongName
	case errors.As(err, &failed):
		found.Reason, found.err = DoorBadCertificate, failed.Err
	case strings.Contains(err.Error(), "remote error: tls: ") &&
		strings.Contains(err.Error(), "certificate"):
		found.Reason = DoorWantsCertificate
	default:
		return nil
	}
	return found
}

// ReadTLS makes Options.TLS from files in PEM: the authorities that sign the nodes' certificates,
// and the client's own certificate with its key. An empty ca means the system's authorities; an
// empty certificate and key mean that the client shows none. It returns nil if all are empty.
func ReadTLS(ca, certificate, key string) (*tls.Config, error) {
	if ca == "" && certificate == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("client: the authorities of the nodes' certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("client: %s holds no certificate in PEM", ca)
		}
	}
	if (certificate == "") != (key == "") {
		return nil, errors.New("client: a certificate needs its key, and a key its certificate")
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("client: the certificate %s with key %s: %w", certificate, key,
				err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
