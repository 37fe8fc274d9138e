// Package postgres streams entries into tables of a PostgreSQL database.
//
// The rows of a batch and the position after it are written in one SQL transaction. The position is
// changed only if it is still the one that the batch begins after, and rows have their position as
// primary key. So each entry is there once, whatever breaks off: a crash before the commit leaves
// nothing, and after a commit whose answer is lost, the next run reads the position. A session lock
// keeps a second sink of the same name out.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/big"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/ledger"
)

// Config says where to write.
type Config struct {
	// URL is a connection string: postgres://USER@HOST/DATABASE or KEY=VALUE words. The variables
	// PGHOST, PGUSER and so on stand in for what is missing.
	URL      string
	Password string // if URL has none
	Schema   string // of the tables, which are made; default ledgerd
	Sink     string // its name: the schema has a stream for each name
}

var names = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// tables makes the tables. A column line has the type json, not jsonb: notes may have the character
// NUL, which jsonb refuses.
const tables = `
CREATE SCHEMA IF NOT EXISTS %[1]s;
CREATE TABLE IF NOT EXISTS %[1]s.position (
	sink text NOT NULL,
	shard bigint NOT NULL,
	genesis text NOT NULL,
	height bigint NOT NULL,
	index bigint NOT NULL,
	block text NOT NULL,
	changed timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (sink, shard));
CREATE TABLE IF NOT EXISTS %[1]s.entry (
	sink text NOT NULL,
	shard bigint NOT NULL,
	height bigint NOT NULL,
	index bigint NOT NULL,
	id text NOT NULL,
	outcome text NOT NULL,
	code integer NOT NULL,
	reason text NOT NULL,
	signer text NOT NULL,
	about text,
	block text NOT NULL,
	time timestamptz NOT NULL,
	line json NOT NULL,
	PRIMARY KEY (sink, shard, height, index));
CREATE INDEX IF NOT EXISTS entry_id ON %[1]s.entry (id);
CREATE INDEX IF NOT EXISTS entry_about ON %[1]s.entry (about) WHERE about IS NOT NULL;
CREATE TABLE IF NOT EXISTS %[1]s.posting (
	sink text NOT NULL,
	shard bigint NOT NULL,
	height bigint NOT NULL,
	index bigint NOT NULL,
	place bigint NOT NULL,
	account text NOT NULL,
	asset text NOT NULL,
	amount numeric NOT NULL,
	PRIMARY KEY (sink, shard, height, index, place));
CREATE INDEX IF NOT EXISTS posting_account ON %[1]s.posting (account, asset);
`

// New returns the target. It connects when a stream begins.
func New(config Config) (sink.Target, error) {
	if config.Schema == "" {
		config.Schema = "ledgerd"
	}
	if !names.MatchString(config.Schema) {
		return nil, fmt.Errorf("postgres: schema %q: use small letters, digits and _, at most 63",
			config.Schema)
	}
	parsed, err := pgx.ParseConfig(config.URL)
	if err != nil {
		// The error of pgx has the URL, without its password.
		return nil, fmt.Errorf("postgres: url: %w", err)
	}
	if config.Password != "" {
		parsed.Password = config.Password
	}
	if parsed.RuntimeParams["application_name"] == "" {
		parsed.RuntimeParams["application_name"] = "ledgerd sink " + config.Sink
	}
	if parsed.ConnectTimeout == 0 {
		parsed.ConnectTimeout = 10 * time.Second
	}
	return &target{config: config, connect: parsed,
		schema: pgx.Identifier{config.Schema}.Sanitize()}, nil
}

type target struct {
	config  Config
	connect *pgx.ConnConfig
	schema  string // quoted
	// between is called in each transaction after the rows and before the position; tests only.
	between func(*pgx.Conn)
}

func (t *target) Close() error { return nil }

// KeepsMarks implements sink.Target: the mark is apart from the records.
func (t *target) KeepsMarks() bool { return true }

// Open connects, makes the tables unless they are there, and takes the stream's lock.
func (t *target) Open(ctx context.Context, chain sink.Chain) (_ sink.Lane, err error) {
	connection, err := pgx.ConnectConfig(ctx, t.connect.Copy())
	if err != nil {
		return nil, explain(err)
	}
	l := &lane{target: t, connection: connection, chain: chain}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	var encoding string
	if err := connection.QueryRow(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return nil, explain(err)
	}
	if encoding != "UTF8" {
		return nil, sink.Refuse("postgres: the database has the encoding %s, which lacks "+
			"characters of notes: create one with ENCODING 'UTF8'", encoding)
	}
	if err := l.makeTables(ctx); err != nil {
		return nil, err
	}
	hash := fnv.New32a()
	hash.Write([]byte(t.config.Schema + "\x00" + t.config.Sink)) // never fails
	var locked bool
	if err := connection.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)",
		int32(hash.Sum32()), int32(chain.Shard)).Scan(&locked); err != nil {
		return nil, explain(err)
	}
	if !locked {
		return nil, fmt.Errorf("postgres: another process streams shard %d into schema %s as %q: "+
			"end one of them, or give this one another name", chain.Shard, t.config.Schema,
			t.config.Sink)
	}
	return l, nil
}

// makeTables makes the tables if one is missing. Two processes at once would be in each other's
// way, so one waits for the other.
func (l *lane) makeTables(ctx context.Context) error {
	var there bool
	if err := l.connection.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL",
		l.target.schema+".posting").Scan(&there); err != nil {
		return explain(err)
	}
	if there {
		return nil
	}
	return explain(pgx.BeginFunc(ctx, l.connection, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7261726, 0)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(tables, l.target.schema))
		return err
	}))
}

type lane struct {
	target     *target
	connection *pgx.Conn
	chain      sink.Chain
}

func (l *lane) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return l.connection.Close(ctx)
}

// Mark reads the position.
func (l *lane) Mark(ctx context.Context) (*sink.Mark, error) {
	var genesis, block string
	mark := &sink.Mark{Position: sink.Position{Shard: l.chain.Shard}}
	err := l.connection.QueryRow(ctx, "SELECT genesis, height, index, block FROM "+
		l.target.schema+".position WHERE sink = $1 AND shard = $2", l.target.config.Sink,
		int64(l.chain.Shard)).Scan(&genesis, &mark.Height, &mark.Index, &block)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err)
	}
	var bad error
	if mark.Genesis, err = ledger.ParseHash(genesis); err != nil {
		bad = err
	}
	if mark.Block, err = ledger.ParseHash(block); err != nil || bad != nil {
		return nil, sink.Refuse("postgres: the row of the stream in %s.position is damaged: %w",
			l.target.schema, errors.Join(bad, err))
	}
	return mark, nil
}

// Write writes rows and position in one transaction.
func (l *lane) Write(ctx context.Context, batch *sink.Batch) error {
	return explain(pgx.BeginFunc(ctx, l.connection, func(tx pgx.Tx) error {
		if err := l.rows(ctx, tx, batch); err != nil {
			return err
		}
		if l.target.between != nil {
			l.target.between(l.connection)
		}
		return l.move(ctx, tx, batch)
	}))
}

// rows inserts the batch's rows.
func (l *lane) rows(ctx context.Context, tx pgx.Tx, batch *sink.Batch) error {
	if len(batch.Records) == 0 {
		return nil
	}
	name := l.target.config.Sink
	var postings [][]any
	_, err := tx.CopyFrom(ctx, pgx.Identifier{l.target.config.Schema, "entry"},
		[]string{"sink", "shard", "height", "index", "id", "outcome", "code", "reason", "signer",
			"about", "block", "time", "line"},
		pgx.CopyFromSlice(len(batch.Records), func(i int) ([]any, error) {
			r := &batch.Records[i]
			var about *string
			if !r.About.IsZero() {
				text := r.About.String()
				about = &text
			}
			for place, p := range r.Postings {
				postings = append(postings, []any{name, int64(r.Shard), int64(r.Height),
					int64(r.Index), int64(place), string(p.Account), string(p.Asset),
					pgtype.Numeric{Int: number(p.Amount), Valid: true}})
			}
			return []any{name, int64(r.Shard), int64(r.Height), int64(r.Index), r.ID.String(),
				r.Outcome, int32(r.Code), r.Reason, string(r.Signer), about, r.Block.String(),
				time.UnixMilli(int64(r.Time)).UTC(), r.Line}, nil
		}))
	if err != nil || len(postings) == 0 {
		return err
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{l.target.config.Schema, "posting"},
		[]string{"sink", "shard", "height", "index", "place", "account", "asset", "amount"},
		pgx.CopyFromRows(postings))
	return err
}

// number returns an amount as a number of any size.
func number(amount ledger.Amount) *big.Int {
	high, low := amount.Magnitude()
	value := new(big.Int).Lsh(new(big.Int).SetUint64(high), 64)
	value.Or(value, new(big.Int).SetUint64(low))
	if amount.Sign() < 0 {
		value.Neg(value)
	}
	return value
}

// move moves the position, if it is where the batch begins.
func (l *lane) move(ctx context.Context, tx pgx.Tx, batch *sink.Batch) error {
	through := batch.Through
	arguments := []any{l.target.config.Sink, int64(through.Shard), through.Genesis.String(),
		int64(through.Height), int64(through.Index), through.Block.String()}
	statement := "INSERT INTO " + l.target.schema + ".position (sink, shard, genesis, height, " +
		"index, block) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"
	if batch.After != nil {
		statement = "UPDATE " + l.target.schema + ".position SET height = $4, index = $5, " +
			"block = $6, changed = now() WHERE sink = $1 AND shard = $2 AND genesis = $3 AND " +
			"height = $7 AND index = $8 AND block = $9"
		arguments = append(arguments, int64(batch.After.Height), int64(batch.After.Index),
			batch.After.Block.String())
	}
	moved, err := tx.Exec(ctx, statement, arguments...)
	if err != nil {
		return err
	}
	if moved.RowsAffected() != 1 {
		return fmt.Errorf("postgres: the position of %q is not where it was: another process "+
			"wrote the stream; end one of them", l.target.config.Sink)
	}
	return nil
}

// explain adds to an error of the server what to do about it. What a person must mend is refused.
func explain(err error) error {
	failed := (*pgconn.PgError)(nil)
	if !errors.As(err, &failed) {
		return err
	}
	class := failed.Code[:min(2, len(failed.Code))]
	hint := ""
	switch {
	case failed.Code == "42501":
		hint = "grant the user CREATE on the database, or make the schema and grant it USAGE, " +
			"CREATE, SELECT, INSERT and UPDATE there"
	case class == "28":
		hint = "check user and password in the configuration"
	case failed.Code == "3D000":
		hint = "create the database first"
	case class == "42":
		hint = "the schema has tables of another form: name another one in the configuration"
	case class == "22" || class == "23":
		hint = "rows are there that this stream did not write: use another schema or name"
	default: // the server is busy, full, or stops
		return err
	}
	return sink.Refuse("%w: %s", err, strings.TrimSpace(hint))
}
