// Package records has the rows of a tenant's tables, and the statements that write and take them:
// token rows (`ready`, `lease`, `wait`), journal, counts, fan-outs, votes and outbox. What a
// transaction inserts is gathered in Inserts, so that one statement has many rows.
//
// It uses package catalog. Begin with Inserts and Tokens; statements.go has the hot statements.
//
// It exports, by the first word of its files:
//
//   - checkpoint: FirstCheck
//   - fan: FanOut, FanOutColumns, FanOutColumnsOf, LatestFanOut, SaveFanOut, QueueSaves, ChildRun,
//     QueuePlaces, ReadPlaces
//   - inserts: Inserts, RollTables, Token, TypeToken, Column
//   - journal: MaxSeq, JournalFull
//   - lifetime: LifetimeRow, NewLifetime, QueueLifetimes, QueueExpiry, LifetimeMove, MoveLifetimes
//   - options: ReadOptions, OptionsOf, QueueOptions, QueueCreated
//   - outbox: OutboxKind, OutboxEnded, OutboxLook, OutboxSubmitted, OutboxChildren, OutboxSpawn,
//     OutboxStart, OutboxStop, OutboxPause, OutboxPriority, OutboxSignal, OutboxSignalKey,
//     OutboxSignalWaits, OutboxFinal, OutboxRow, ChildCounts, ChildEnded, NeedsFollowUp, FanOutKey,
//     FanOutKeyOf, QueueOutbox
//   - search: SearchEntry, SearchEntries
//   - settlements: SettleTaken, WriteSettled, QueueSettlements, SilentClaim, QueueBlocks
//   - spawn: StartRow
//   - statements: CheckpointJoin
//   - take: TakeAnyTokens, QueueTake, ReadyPlaces, StillLive, Without, CancelTries
//   - tally: Tally, DropTallies, FoldJob
//   - tokens: Tokens, ReadyKey, ReadyRow, UntilOthers
//   - votes: VoteRow
package records
