package order

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// judgeSetAgreement checks that the n-th round that two servers A-deliver is the same in all its
// parts [Poke19, Theorem 6.4.11 and Corollary 6.4.10.1]. It returns the differences as evidence, or
// nil.
func judgeSetAgreement(one ServerID, a *Delivery, other ServerID, b *Delivery) *Violation {
	if sameRound(a, b) {
		return nil
	}
	evidence := []string{
		fmt.Sprintf("server %d A-delivers %s", one, describeRound(a)),
		fmt.Sprintf("server %d A-delivers %s", other, describeRound(b)),
	}
	for i := 0; i < min(len(a.Messages), len(b.Messages)); i++ {
		m, n := a.Messages[i], b.Messages[i]
		if m.Origin != n.Origin {
			break
		}
		if !bytes.Equal(m.Payload, n.Payload) {
			evidence = append(evidence, fmt.Sprintf("the message of %d is %s there and %s here",
				m.Origin, excerpt(m.Payload), excerpt(n.Payload)))
			break
		}
	}
	return &Violation{SetAgreement, evidence}
}

// sameRound reports whether two A-delivered rounds are equal.
func sameRound(a, b *Delivery) bool {
	if a.Epoch != b.Epoch || a.Round != b.Round || len(a.Messages) != len(b.Messages) ||
		!slices.Equal(a.Removed, b.Removed) {
		return false
	}
	for i := range a.Messages {
		if a.Messages[i].Origin != b.Messages[i].Origin ||
			!bytes.Equal(a.Messages[i].Payload, b.Messages[i].Payload) {
			return false
		}
	}
	return true
}

// describeRound describes a round on one line.
func describeRound(d *Delivery) string {
	text := fmt.Sprintf("[epoch %d, round %d] with messages of", d.Epoch, d.Round)
	for _, m := range d.Messages {
		text += fmt.Sprintf(" %d", m.Origin)
	}
	if len(d.Removed) == 0 {
		return text
	}
	return text + ", removing " + strings.Trim(fmt.Sprint(d.Removed), "[]")
}

// excerpt returns the length and the beginning of a payload.
func excerpt(payload []byte) string {
	const shown = 12
	if len(payload) <= shown {
		return fmt.Sprintf("%d bytes %q", len(payload), payload)
	}
	return fmt.Sprintf("%d bytes %q...", len(payload), payload[:shown])
}
