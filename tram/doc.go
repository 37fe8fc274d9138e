// Package tram orders messages between groups: TRAM's tree, over any log of a group [TRAM].
package tram
