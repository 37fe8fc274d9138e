package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/home"
)

// The files of the certificate in a home that cluster join made.
const (
	certificateFile    = "tls.crt"
	certificateKeyFile = "tls.key"
	// selfSignedLife is how long a certificate lasts that cluster join made.
	selfSignedLife = 2 * 365 * 24 * time.Hour
)

// certify writes the certificate of a home whose configuration names one in the home, unless it is
// there. It reports whether the certificate signs itself.
func (o *joinOptions) certify(at *home.Home) (selfSigned bool, err error) {
	if at.Config.API.Certificate != certificateFile || at.Config.API.Key != certificateKeyFile {
		return false, nil
	}
	certificate, key := filepath.Join(at.Dir, certificateFile),
		filepath.Join(at.Dir, certificateKeyFile)
	if _, err := os.Lstat(certificate); !errors.Is(err, fs.ErrNotExist) {
		return false, err // an earlier run wrote the key before it
	}
	var text, keyText []byte
	if o.certificate == "" {
		hosts := []string{o.address}
		for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		text, keyText, err = doors.SelfSigned(hosts, time.Now(), selfSignedLife)
	} else {
		if text, err = os.ReadFile(o.certificate); err == nil {
			keyText, err = os.ReadFile(o.certificateKey)
		}
		if err == nil {
			_, err = tls.X509KeyPair(text, keyText)
		}
	}
	if err != nil {
		return false, fmt.Errorf("the certificate of the new node's API: %w", err)
	}
	if err := home.WriteFile(key, keyText, 0o600); err != nil {
		return false, err
	}
	return o.certificate == "", home.WriteFile(certificate, text, 0o644)
}
