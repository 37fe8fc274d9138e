// Package config reads the file that `ledgerd sink` runs from, and makes the target that it
// describes.
//
// The file is TOML, as a node's config.toml. An unknown key is an error, since it is a typing
// mistake. Secrets are not in the file: a key that ends with _env names an environment variable,
// and one that ends with _file a file. They are in no error, and nothing prints them.
package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/kafka"
	"github.com/ledgerd/ledgerd/client/sink/nats"
	"github.com/ledgerd/ledgerd/client/sink/postgres"
	"github.com/ledgerd/ledgerd/client/sink/webhook"
	"github.com/ledgerd/ledgerd/ledger"
)

// ErrConfig reports an invalid configuration.
var ErrConfig = errors.New("configuration")

// Kinds are the kinds of targets.
var Kinds = []string{"postgres", "kafka", "nats", "webhook"}

// KindOf returns the kind of a name, which may be another name for it.
func KindOf(name string) (kind string, known bool) {
	switch name {
	case "postgresql":
		name = "postgres"
	case "webhooks":
		name = "webhook"
	}
	return name, slices.Contains(Kinds, name)
}

// Config is the content of a file.
type Config struct {
	// Name of the stream. A target keeps a position for each name.
	Name string `koanf:"name"`
	// Nodes to ask, if the command line names none.
	Nodes []string `koanf:"nodes"`
	// Shards to stream; all by default.
	Shards  []int64       `koanf:"shards"`
	Filter  FilterConfig  `koanf:"filter"`
	Batch   BatchConfig   `koanf:"batch"`
	Retry   RetryConfig   `koanf:"retry"`
	Metrics MetricsConfig `koanf:"metrics"`

	Postgres PostgresConfig `koanf:"postgres"`
	Kafka    KafkaConfig    `koanf:"kafka"`
	NATS     NATSConfig     `koanf:"nats"`
	Webhook  WebhookConfig  `koanf:"webhook"`

	folder string // of the file; paths are below it
}

// FilterConfig is a sink.Filter.
type FilterConfig struct {
	Accounts      []string `koanf:"accounts"`
	Assets        []string `koanf:"assets"`
	Organisations []string `koanf:"organisations"`
}

// BatchConfig bounds what is written at once.
type BatchConfig struct {
	Records int `koanf:"records"`
	Bytes   int `koanf:"bytes"`
}

// RetryConfig says how failures are retried.
type RetryConfig struct {
	GiveUp     time.Duration `koanf:"give_up"`
	Patience   time.Duration `koanf:"patience"`
	MaxBackoff time.Duration `koanf:"max_backoff"`
}

// MetricsConfig configures the listener for Prometheus.
type MetricsConfig struct {
	Listen string `koanf:"listen"`
}

// PostgresConfig is a postgres.Config.
type PostgresConfig struct {
	URL          string `koanf:"url"`
	URLEnv       string `koanf:"url_env"`
	PasswordEnv  string `koanf:"password_env"`
	PasswordFile string `koanf:"password_file"`
	Schema       string `koanf:"schema"`
}

// KafkaConfig is a kafka.Config.
type KafkaConfig struct {
	Brokers      []string `koanf:"brokers"`
	Topic        string   `koanf:"topic"`
	Partitions   int      `koanf:"partitions"`
	Replicas     int      `koanf:"replicas"`
	TLS          bool     `koanf:"tls"`
	CA           string   `koanf:"ca"`
	Mechanism    string   `koanf:"mechanism"`
	User         string   `koanf:"user"`
	PasswordEnv  string   `koanf:"password_env"`
	PasswordFile string   `koanf:"password_file"`
	MessageBytes int      `koanf:"message_bytes"`
}

// NATSConfig is a nats.Config.
type NATSConfig struct {
	Servers      []string `koanf:"servers"`
	Stream       string   `koanf:"stream"`
	Subject      string   `koanf:"subject"`
	Replicas     int      `koanf:"replicas"`
	Credentials  string   `koanf:"credentials_file"`
	User         string   `koanf:"user"`
	PasswordEnv  string   `koanf:"password_env"`
	PasswordFile string   `koanf:"password_file"`
	TokenEnv     string   `koanf:"token_env"`
	TokenFile    string   `koanf:"token_file"`
	CA           string   `koanf:"ca"`
}

// WebhookConfig is a webhook.Config.
type WebhookConfig struct {
	URL        string        `koanf:"url"`
	SecretEnv  string        `koanf:"secret_env"`
	SecretFile string        `koanf:"secret_file"`
	Folder     string        `koanf:"folder"`
	Timeout    time.Duration `koanf:"timeout"`
	Tries      int           `koanf:"tries"`
	CA         string        `koanf:"ca"`
	AllowHTTP  bool          `koanf:"allow_http"`
}

// keys are all keys of a file, by section.
var keys = []string{"name", "nodes", "shards", "filter.accounts", "filter.assets",
	"filter.organisations", "batch.records", "batch.bytes", "retry.give_up", "retry.patience",
	"retry.max_backoff", "metrics.listen",
	"postgres.url", "postgres.url_env", "postgres.password_env", "postgres.password_file",
	"postgres.schema",
	"kafka.brokers", "kafka.topic", "kafka.partitions", "kafka.replicas", "kafka.tls", "kafka.ca",
	"kafka.mechanism", "kafka.user", "kafka.password_env", "kafka.password_file",
	"kafka.message_bytes",
	"nats.servers", "nats.stream", "nats.subject", "nats.replicas", "nats.credentials_file",
	"nats.user", "nats.password_env", "nats.password_file", "nats.token_env", "nats.token_file",
	"nats.ca",
	"webhook.url", "webhook.secret_env", "webhook.secret_file", "webhook.folder",
	"webhook.timeout", "webhook.tries", "webhook.ca", "webhook.allow_http",
}

var sinkName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// Read reads a file.
func Read(path string) (*Config, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), toml.Parser()); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	for _, key := range k.Keys() {
		if slices.Contains(keys, key) {
			continue
		}
		section, _, _ := strings.Cut(key, ".")
		near := slices.DeleteFunc(slices.Clone(keys), func(known string) bool {
			return !strings.HasPrefix(known, section+".")
		})
		if len(near) == 0 {
			near = keys
		}
		return nil, fmt.Errorf("%w: %s: unknown key %s; the keys are %s", ErrConfig, path, key,
			strings.Join(near, ", "))
	}
	config := &Config{Name: "ledgerd", folder: filepath.Dir(path)}
	if err := k.Unmarshal("", config); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	if !sinkName.MatchString(config.Name) {
		return nil, fmt.Errorf("%w: %s: name %q: use up to 40 letters, digits, - and _", ErrConfig,
			path, config.Name)
	}
	for _, shard := range config.Shards {
		if shard < 0 || shard > math.MaxUint32 {
			return nil, fmt.Errorf("%w: %s: shards: there is no shard %d", ErrConfig, path, shard)
		}
	}
	options := config.Options()
	if err := options.Filter.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	for name, value := range map[string]int{"batch.records": config.Batch.Records,
		"batch.bytes": config.Batch.Bytes, "retry.give_up": int(config.Retry.GiveUp),
		"retry.patience":    int(config.Retry.Patience),
		"retry.max_backoff": int(config.Retry.MaxBackoff)} {
		if value < 0 {
			return nil, fmt.Errorf("%w: %s: %s is below zero", ErrConfig, path, name)
		}
	}
	if config.Batch.Records > 10_000 || config.Batch.Bytes > 64<<20 {
		return nil, fmt.Errorf("%w: %s: batch: at most 10,000 records and 64 MiB are possible",
			ErrConfig, path)
	}
	return config, nil
}

// Options returns the options of a run.
func (c *Config) Options() sink.Options {
	options := sink.Options{BatchRecords: c.Batch.Records, BatchBytes: c.Batch.Bytes,
		GiveUp: c.Retry.GiveUp, Patience: c.Retry.Patience, MaxBackoff: c.Retry.MaxBackoff}
	options.Filter.Accounts = c.Filter.Accounts
	for _, asset := range c.Filter.Assets {
		options.Filter.Assets = append(options.Filter.Assets, ledger.AssetName(asset))
	}
	for _, name := range c.Filter.Organisations {
		options.Filter.Organisations = append(options.Filter.Organisations,
			ledger.OrganisationName(name))
	}
	for _, shard := range c.Shards {
		options.Shards = append(options.Shards, ledger.ShardID(shard))
	}
	return options
}

// Target makes the target of a kind.
func (c *Config) Target(kind string) (target sink.Target, err error) {
	switch kind {
	case "postgres":
		target, err = c.postgres()
	case "kafka":
		target, err = c.kafka()
	case "nats":
		target, err = c.nats()
	case "webhook":
		target, err = c.webhook()
	default:
		err = fmt.Errorf("kind %q: use %s", kind, strings.Join(Kinds, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return target, nil
}

func (c *Config) postgres() (sink.Target, error) {
	p := &c.Postgres
	password, err := c.secret("postgres.password", p.PasswordEnv, p.PasswordFile)
	if err != nil {
		return nil, err
	}
	url := p.URL
	if p.URLEnv != "" {
		if url, err = c.secret("postgres.url", p.URLEnv, ""); err != nil {
			return nil, err
		}
	}
	return postgres.New(postgres.Config{URL: url, Password: password, Schema: p.Schema,
		Sink: c.Name})
}

func (c *Config) kafka() (sink.Target, error) {
	k := &c.Kafka
	password, err := c.secret("kafka.password", k.PasswordEnv, k.PasswordFile)
	if err != nil {
		return nil, err
	}
	made := kafka.Config{Brokers: k.Brokers, Topic: k.Topic, Partitions: k.Partitions,
		Replicas: k.Replicas, Mechanism: k.Mechanism, User: k.User, Password: password,
		MessageBytes: k.MessageBytes, Sink: c.Name}
	if k.TLS || k.CA != "" {
		if made.TLS, err = c.trust(k.CA); err != nil {
			return nil, err
		}
	}
	if k.Mechanism == "plain" && made.TLS == nil {
		return nil, errors.New("kafka: with the mechanism plain the password would be readable " +
			"on the way: set tls, or use scram-sha-512")
	}
	return kafka.New(made)
}

func (c *Config) nats() (sink.Target, error) {
	n := &c.NATS
	password, err := c.secret("nats.password", n.PasswordEnv, n.PasswordFile)
	if err != nil {
		return nil, err
	}
	token, err := c.secret("nats.token", n.TokenEnv, n.TokenFile)
	if err != nil {
		return nil, err
	}
	return nats.New(nats.Config{Servers: n.Servers, Stream: n.Stream, Subject: n.Subject,
		Replicas: n.Replicas, Credentials: c.path(n.Credentials), User: n.User,
		Password: password, Token: token, CA: c.path(n.CA), Sink: c.Name})
}

func (c *Config) webhook() (sink.Target, error) {
	w := &c.Webhook
	secret, err := c.secret("webhook.secret", w.SecretEnv, w.SecretFile)
	if err != nil {
		return nil, err
	}
	made := webhook.Config{URL: w.URL, Secret: []byte(secret), Folder: c.path(w.Folder),
		Timeout: w.Timeout, Tries: w.Tries, AllowHTTP: w.AllowHTTP, Sink: c.Name}
	if w.CA != "" {
		if made.TLS, err = c.trust(w.CA); err != nil {
			return nil, err
		}
	}
	return webhook.New(made)
}

// path returns a path of the file, which is below the file's folder unless it is absolute.
func (c *Config) path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.folder, path)
}

// secret returns a secret from an environment variable or a file, or none if neither is named.
func (c *Config) secret(name, variable, path string) (string, error) {
	switch {
	case variable != "" && path != "":
		return "", fmt.Errorf("%s_env and %[1]s_file: name one of them", name)
	case variable != "":
		value, set := os.LookupEnv(variable)
		if !set || value == "" {
			return "", fmt.Errorf("%s_env: the environment has no %s: set it", name, variable)
		}
		return value, nil
	case path != "":
		text, err := os.ReadFile(c.path(path))
		if err != nil {
			return "", fmt.Errorf("%s_file: %w", name, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			return "", fmt.Errorf("%s_file: %s is empty", name, c.path(path))
		}
		return string(text), nil
	}
	return "", nil
}

// trust returns a configuration of TLS with the authorities in a file, or the system's.
func (c *Config) trust(path string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if path == "" {
		return config, nil
	}
	text, err := os.ReadFile(c.path(path))
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca: %s has no certificate in PEM", c.path(path))
	}
	return config, nil
}
