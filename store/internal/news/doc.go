// Package news has what a node knows without asking the database: the database's time (Clock), what
// has been announced and waits for its reader (Listeners, Listener), and the callers that follow a
// task (Watchers). It calls nobody: owners take their news.
//
// It uses package config for the names of types, and postgres. Begin with News.
//
// It exports, by the first word of its files:
//
//   - clock: ClockEvery, Clock, NewClock, RefreshClock
//   - news: Topics, News, Announced, Listener, Listeners
//   - watchers: Watchers, NewWatchers
package news
