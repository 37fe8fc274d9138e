package doors

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// certificates are the node's certificate and the authorities of its clients. Handshakes look at
// the files, and read them again after a change.
type certificates struct {
	certificate, key, clientCA string
	logger                     *slog.Logger

	loaded atomic.Pointer[loaded]
	files  *files
}

// loaded is what the files held.
type loaded struct {
	config *tls.Config
	leaf   *x509.Certificate
}

// newCertificates reads the certificate. It returns nil if the configuration has none.
func newCertificates(config *Config, logger *slog.Logger) (*certificates, error) {
	if (config.Certificate == "") != (config.Key == "") {
		return nil, errors.New("api.certificate: TLS needs both certificate and key, or neither")
	}
	if config.Certificate == "" {
		if config.ClientCA != "" {
			return nil, errors.New("api.client_ca: certificates of clients need TLS: set " +
				"certificate and key, too")
		}
		return nil, nil
	}
	c := &certificates{certificate: config.Certificate, key: config.Key, clientCA: config.ClientCA,
		logger: logger}
	c.files = watch(c.certificate, c.key, c.clientCA)
	return c, c.load()
}

// load reads the files.
func (c *certificates) load() error {
	pair, err := tls.LoadX509KeyPair(c.certificate, c.key)
	if err != nil {
		return fmt.Errorf("api.certificate: %s with key %s: %w", c.certificate, c.key, err)
	}
	next := &loaded{leaf: pair.Leaf, config: &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}}
	if c.clientCA != "" {
		text, err := os.ReadFile(c.clientCA)
		if err != nil {
			return fmt.Errorf("api.client_ca: %w", err)
		}
		next.config.ClientCAs = x509.NewCertPool()
		if !next.config.ClientCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("api.client_ca: %s holds no certificate in PEM", c.clientCA)
		}
		// A caller may show a token instead.
		next.config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	c.loaded.Store(next)
	if time.Now().After(next.leaf.NotAfter) {
		c.logger.Warn("the API's certificate has expired: clients will refuse it",
			"certificate", c.certificate, "expired", next.leaf.NotAfter)
	}
	return nil
}

// serve returns the configuration of a handshake. It reads files that changed. If that fails, the
// previous certificate stays.
func (c *certificates) serve(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.refresh(time.Now())
	return c.loaded.Load().config, nil
}

func (c *certificates) refresh(now time.Time) {
	c.files.ifChanged(now, func() {
		if err := c.load(); err != nil {
			c.logger.Warn("the API keeps its certificate: the changed files cannot be used",
				"error", err)
			return
		}
		c.logger.Info("the API's certificate was read again", "certificate", c.certificate,
			"valid_until", c.loaded.Load().leaf.NotAfter)
	})
}

// names reports whether the certificate is for a host.
func (c *certificates) names(host string) bool {
	return c != nil && c.loaded.Load().leaf.VerifyHostname(host) == nil
}

// SelfSigned makes a key and a certificate for hosts that it signs itself, both in PEM. Clients
// trust it if they get the certificate as an authority's.
func SelfSigned(hosts []string, from time.Time, life time.Duration) (certificate, key []byte,
	err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ledgerd"},
		NotBefore: from.Add(-time.Hour), NotAfter: from.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			template.IPAddresses = append(template.IPAddresses, address.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(),
		private)
	if err != nil {
		return nil, nil, err
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encoded}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey}), nil
}
