package store

import "github.com/asyncflow/asyncflow/store/internal/news"

// The words of package news for callers of the store.

type (
	// Announced are the announced tasks of a type.
	Announced = news.Announced
	// Clock returns the database's time without a query: it keeps the offset from clock_timestamp()
	// to this process' monotonic clock.
	Clock = news.Clock
	// Listener keeps the news of this node until its owner reads them.
	Listener = news.Listener
	// News are what came since a Listener was last read.
	News = news.News
	// Topics says of what a Listener keeps news.
	Topics = news.Topics
)
