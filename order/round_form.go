package order

import "fmt"

// judgeRoundForm checks that an A-delivered round has the form that Delivery promises. It follows
// the previous round, its messages are by ascending origin, and the origins and removed servers
// together are the members, each once. It returns the defect, or "". members is the group before
// the round.
func judgeRoundForm(before *Delivery, d *Delivery, members []bool) string {
	if before != nil && d.Round != before.Round+1 {
		return fmt.Sprintf("round %d does not follow round %d", d.Round, before.Round)
	}
	if before != nil && d.Epoch < before.Epoch {
		return fmt.Sprintf("epoch %d comes after epoch %d", d.Epoch, before.Epoch)
	}
	seen := make([]bool, len(members))
	last := -1
	for _, m := range d.Messages {
		switch {
		case int(m.Origin) >= len(members) || !members[m.Origin]:
			return fmt.Sprintf("it has a message of %d, which is not a member", m.Origin)
		case int(m.Origin) <= last:
			return fmt.Sprintf("its messages are not by ascending origin: %d after %d", m.Origin,
				last)
		}
		last, seen[m.Origin] = int(m.Origin), true
	}
	last = -1
	for _, s := range d.Removed {
		switch {
		case int(s) >= len(members) || !members[s]:
			return fmt.Sprintf("it removes %d, which is not a member", s)
		case int(s) <= last:
			return fmt.Sprintf("its removed servers are not ascending: %d after %d", s, last)
		case seen[s]:
			return fmt.Sprintf("it removes %d, whose message it holds", s)
		}
		last, seen[s] = int(s), true
	}
	for s := range members {
		if members[s] && !seen[s] {
			return fmt.Sprintf("it neither holds a message of member %d nor removes it", s)
		}
	}
	return ""
}

// judgePromptForm checks the form of a round that an engine with prompt delivery A-delivers. It
// follows the previous round, all its messages have a payload, they are by ascending origin, and it
// removes nobody. Its epoch is not before that of the last round with messages, which is said, and
// is 0 if it has none. It returns the defect, or "".
func judgePromptForm(said, before *Delivery, d *Delivery, servers int) string {
	switch {
	case before != nil && d.Round != before.Round+1:
		return fmt.Sprintf("round %d does not follow round %d", d.Round, before.Round)
	case said != nil && d.Epoch != 0 && d.Epoch < said.Epoch:
		return fmt.Sprintf("epoch %d comes after epoch %d", d.Epoch, said.Epoch)
	case (d.Epoch == 0) != (len(d.Messages) == 0):
		return fmt.Sprintf("it has %d messages in epoch %d", len(d.Messages), d.Epoch)
	case len(d.Removed) > 0:
		return fmt.Sprintf("it removes %v, which only a closing does", d.Removed)
	}
	last := -1
	for _, m := range d.Messages {
		switch {
		case int(m.Origin) >= servers:
			return fmt.Sprintf("it has a message of %d, which does not exist", m.Origin)
		case int(m.Origin) <= last:
			return fmt.Sprintf("its messages are not by ascending origin: %d after %d", m.Origin,
				last)
		case len(m.Payload) == 0:
			return fmt.Sprintf("it has an empty message of %d", m.Origin)
		}
		last = int(m.Origin)
	}
	return ""
}

// lastWithMessages returns the last round that has messages, nil if there is none.
func lastWithMessages(rounds []Delivery) *Delivery {
	at := len(rounds) - 1
	for at >= 0 && len(rounds[at].Messages) == 0 {
		at--
	}
	if at < 0 {
		return nil
	}
	return &rounds[at]
}
