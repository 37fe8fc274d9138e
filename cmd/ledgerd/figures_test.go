package main

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// The book counts what crosses once, each shard that it concerns counts it, and periods add up.
func TestFigures(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	for shard, name := range []string{"acme", "bank"} {
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	counts := func(of any) (transactions, first, failed float64) {
		object := of.(map[string]any)
		transactions, _ = object["transactions"].(float64)
		first, _ = object["first"].(float64)
		failed, _ = object["failed"].(float64)
		return transactions, first, failed
	}
	read := func() (report map[string]any, total float64, shards [2][3]float64) {
		report = s.object("figures --by month %n")
		total, _, _ = counts(report["book"])
		for i, shard := range report["shards"].([]any)[:2] {
			shards[i][0], shards[i][1], shards[i][2] = counts(shard)
		}
		return report, total, shards
	}
	_, before, had := read()
	s.must("tx transfer acme:mint bank:cash 30 --wait durable-everywhere %n %k")
	s.run("tx transfer bank:cash bank:nobody 4 --wait durable %n %k")
	report, total, have := read()
	wantKeys(t, report, "by book shards missing")
	failed := have[1][2] - had[1][2]
	if total-before != 1+failed || have[0][0]-had[0][0] != 1 ||
		have[1][0]-had[1][0] != 1+failed {
		t.Errorf("before %v %v, then %v %v", before, had, total, have)
	}
	periods := report["book"].(map[string]any)["periods"].([]any)
	if sum, _, _ := counts(periods[0]); len(periods) == 1 && sum != total {
		t.Errorf("a month of %v transactions, of %v in all", sum, total)
	}
	rows, err := csv.NewReader(strings.NewReader(s.must(
		"figures --by day --last 3660 --format csv %n"))).ReadAll()
	if err != nil || fmt.Sprint(rows[0]) != "[shard day transactions first failed between]" ||
		rows[1][0] != "book" {
		t.Fatalf("%v: %v", rows, err)
	}
	if _, err := time.Parse(time.DateOnly, rows[1][1]); err != nil {
		t.Error(err)
	}
	if text := s.must("figures --by hour --shard 1 %n"); !strings.Contains(text, "FAILED") ||
		!strings.Contains(text, fmt.Sprint(have[1][0])) {
		t.Error(text)
	}
	if one := s.object("figures --shard 1 %n"); one["book"] != nil ||
		len(one["shards"].([]any)) != 1 {
		t.Error(one)
	}
	for _, wrong := range []string{"--by week", "--last 3661", "--shard 77", "--format pdf"} {
		if result := s.run("figures %n " + wrong); result.status != exitUsage {
			t.Errorf("%s: %+v", wrong, result)
		}
	}
}

// The newest periods of several shards are complete sums, and what is missing is told.
func TestFiguresAddUp(t *testing.T) {
	t.Parallel()
	period := func(start uint64, first uint64) shardPeriodReport {
		return shardPeriodReport{StartMS: start, countsReport: countsReport{First: first}}
	}
	report := &figuresReport{By: "month", Missing: []uint32{2}, Shards: []shardFiguresReport{
		{Shard: 0, FromHeight: 1, Periods: []shardPeriodReport{period(1, 5), period(3, 7)}},
		{Shard: 1, FromHeight: 9, Periods: []shardPeriodReport{period(2, 1), period(3, 2)}},
	}}
	report.sum(2)
	if got := fmt.Sprint(report.Book.Periods); got != "[{ 2 1 0} { 3 9 0}]" {
		t.Error(got)
	}
	lacks := fmt.Sprint(report.lacking())
	if !strings.Contains(lacks, "shard 2 does not answer") ||
		!strings.Contains(lacks, "shard 1 has no blocks before 9") {
		t.Error(lacks)
	}
}
