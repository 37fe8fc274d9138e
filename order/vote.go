package order

// Vote is what a server may have made possible: a round that it has not A-delivered itself, and the
// one value of it that it voted for.
type Vote struct {
	Round Round
	Epoch Epoch
	// Reliable is true for a decided set, false for a complete unreliable round.
	Reliable bool
	// Confirmed says that this server knows that a majority of the shard voted alike, and said so:
	// for a set, or for [e,r] by confirming a set of [[e+1,r+1]].
	Confirmed bool
	// Members are the servers of the group when the round ran, the possible voters, by their places
	// in the group, ascending. Origins are those whose messages the value has.
	Members []ServerID
	Origins []ServerID
	// Delivery is what this server A-delivers if the round is A-delivered.
	Delivery Delivery
}

// KnownVote is a vote of another server that this server saw, for a round that this server has not
// A-delivered. It does not include contents: this server need not hold them.
type KnownVote struct {
	// Voter is the server that voted.
	Voter ServerID
	Round Round
	Epoch Epoch
	// Reliable and Confirmed are those of the voter's Vote.
	Reliable  bool
	Confirmed bool
	// Origins are the servers whose messages the value has, ascending. Together with the state they
	// determine its contents, because a server A-broadcasts one message in a state.
	Origins []ServerID
}

// Held is the content of a round that a server with prompt delivery holds, has not closed, and
// would send along if the round were rerun.
type Held struct {
	Round Round
	// Epoch and Reliable are the last state in which the server A-broadcast in that round.
	Epoch    Epoch
	Reliable bool
	// Delivery is the content as it would be A-delivered.
	Delivery Delivery
}

// Voter is an engine that returns its votes: for rounds that it has not A-delivered itself, but may
// have enabled others to A-deliver, by ascending round.
type Voter interface {
	Votes() []Vote
	// VotesMax returns how many rounds a server may have voted for without having A-delivered them.
	// It is the same at all servers of a group, at all times.
	VotesMax() int
}

// Witness is an engine that saw the votes of others.
type Witness interface{ KnownVotes() []KnownVote }

// Holder is an engine with prompt delivery, which returns what it holds of rounds that it has not
// closed.
type Holder interface{ Held() []Held }

// FrozenLog is what a run leaves at a server whose engine orders by a log that a leader writes into
// the memory of others. Nobody writes it any more.
type FrozenLog struct {
	// Rounds are those behind the last one that the server A-delivered, by ascending round.
	Rounds []Delivery
	// Stamp and Index are those of the log's last entry: the term of the last leader that made the
	// entry its own, and its place in the log, from 1 on. They are 0 for an empty log. Of two logs,
	// the one with the greater stamp is more recent, and with equal stamps the one with the greater
	// index.
	Stamp, Index uint64
	// RoundsMax is how many rounds a log may have behind the last one that its server A-delivered.
	// It is the same at all servers of a run.
	RoundsMax int
}
