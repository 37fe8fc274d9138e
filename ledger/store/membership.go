package store

import "github.com/ledgerd/ledgerd/ledger"

// Membership returns the members as of the head. The caller owns the copy.
func (s *Store) Membership() ledger.Membership {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Membership()
}

// Charter returns the charter as of the head. The caller owns the copy.
func (s *Store) Charter() ledger.Charter {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Charter()
}

// MembershipHeight returns the height of the last block that changed the members; 0 if there is
// none.
func (s *Store) MembershipHeight() ledger.Height {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.MembershipHeight()
}

// MembershipAt returns the members after the block at a height, or as of the head if the head is
// lower. The caller owns the copy.
func (s *Store) MembershipAt(height ledger.Height) ledger.Membership {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.MembershipAt(height)
}

// Engine returns the engine that the chain names as of the head.
func (s *Store) Engine() ledger.EngineChoice {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Engine()
}

// EngineAt returns the engine that the chain names after the block at a height, or as of the head
// if the head is lower.
func (s *Store) EngineAt(height ledger.Height) ledger.EngineChoice {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.EngineAt(height)
}

// FormerMembers returns the members that left, by index. The caller owns the copy.
func (s *Store) FormerMembers() []ledger.FormerMember {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.FormerMembers()
}
