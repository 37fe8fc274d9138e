package node_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/docs/pagetest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestReference compares docs/reference/metrics.md with the metrics that a node of a book of two
// shards shows after a call and while a stream is open. The flag -write writes the page.
func TestReference(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0)
	b.open() // which makes calls
	done := errors.New("done")
	err := b.via(0).Subscribe(t.Context(), 1, false, func(*ledgerdv1.SubscribeResponse) error {
		text := ""
		b.eventually("the stream to the child has metrics", func() bool {
			text = exposed(t, b.nodes[0].URL())
			return strings.Contains(text, "ledgerd_shard_stream_behind{")
		})
		pagetest.Compare(t, "metrics.md", metricsPage(text))
		return done
	})
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
}

// exposed returns the text that a node shows to Prometheus.
func exposed(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shown is a metric that a node shows.
type shown struct {
	name, kind, help string
	labels           []string
}

var (
	metricHead   = regexp.MustCompile(`^# (HELP|TYPE) (\w+) (.*)$`)
	metricSample = regexp.MustCompile(`^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} `)
	metricLabel  = regexp.MustCompile(`(\w+)="`)
)

// metricsPage renders the metrics of a node as one page, from their text exposition.
func metricsPage(text string) string {
	metrics := map[string]*shown{}
	of := func(name string) *shown {
		if metrics[name] == nil {
			metrics[name] = &shown{name: name}
		}
		return metrics[name]
	}
	for line := range strings.SplitSeq(text, "\n") {
		head, sample := metricHead.FindStringSubmatch(line), metricSample.FindStringSubmatch(line)
		switch {
		case head != nil && head[1] == "HELP":
			of(head[2]).help = head[3]
		case head != nil:
			of(head[2]).kind = head[3]
		case sample != nil:
			for _, label := range metricLabel.FindAllStringSubmatch(sample[2], -1) {
				metric := of(sample[1])
				if label[1] != "le" && !slices.Contains(metric.labels, label[1]) {
					metric.labels = append(metric.labels, label[1])
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\n" + pagetest.Wrap("Every metric of ledgerd that a node shows at "+
		"`/metrics`, for Prometheus. The page is made from what a node registers; `go test "+
		"./node -run TestReference -write` writes it.") + "\n\n")
	b.WriteString(pagetest.Wrap("Beside these, a node shows the metrics of Go's runtime "+
		"(`go_...`) and of its process (`process_...`). Metrics that begin with "+
		"`ledgerd_shard_` exist only in a book of several shards, and those with the label "+
		"`child` only where the shard has shards below it. A metric with the label `method` "+
		"appears with the first call.") + "\n\n| metric | kind | labels | meaning |\n" +
		"|---|---|---|---|\n")
	names := []string{}
	for name := range metrics {
		if strings.HasPrefix(name, "ledgerd_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		metric := metrics[name]
		slices.Sort(metric.labels)
		labels := ""
		if len(metric.labels) > 0 {
			labels = "`" + strings.Join(metric.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, metric.kind, labels,
			pagetest.Cell(metric.help))
	}
	return b.String()
}
