// Package order states the two contracts that every engine of the house fulfils, atomic broadcast and atomic multicast, and holds the property
// checker that judges them.
package order
