// Package allconcur is the leaderless atomic broadcast within a shard.
package allconcur
