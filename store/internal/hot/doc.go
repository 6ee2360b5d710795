// Package hot is the path of every task: it submits, leases and settles. It also keeps the order of
// flow keys, the limits of tasks in flight, and the numbers of new tasks.
//
// It uses packages records and catalog. Begin with Commit, which writes a batch of new tasks and
// settlements in one transaction, then Lease.
//
// It exports, by the first word of its files:
//
//   - commit: Writes, Refused, Commit, AnnounceLeases, AnnounceEnds, HasUnknownLeases, Home,
//     Distributed, Extension, Seen, Checkpoint, ExtendAgain, Insertion, NewInsertion, OptionsText,
//     QueueTasks, AddNew, InsertAgain, RunInsert, InsertMissing, Renumber, IsUndefinedTable, Key,
//     IsHeld, KeyWait, KeysTogether, KeysAgain, KeysApart, InsertWithKeys, Holder, ClaimKeys,
//     ClaimKeysApart, ExpireKeys, SettleLate, OtherOutcome, Replace, Replaced, ReplaceFunc, Ending,
//     Settled, SettleAgain, CollectIDs, AnnounceTakenEnds, NoteFailure, CheckCommits
//   - flow: ReadKeys, AnnounceFreed, ReleaseKey, ReleaseKeys, LeasePatience, ReleaseStuck,
//     UnblockKey, KeysBefore, TurnsBefore
//   - incarnation: EnterIncarnation, NumberTenant
//   - id: NumbersAtHand, RunAtHand, AllotNumbers, AllotRun, UsedUp
//   - journal: Latest, LatestOf, Written, WentTo, WrittenAs, FirstSent, Passed, WaitsThen
//   - lease: LeaseMargin, Lease, LeasesInOrder, BeginLeases, AnnounceTaken, InFlight, Admission,
//     Candidate, QueueBegun, SetBegun, RaisedBefore, LimitedLease, LeaseLimited, ReadPast,
//     PastDocument, QueuePayloads, QueueBoundedPayloads, LeasesOf, LeaseName, BeginSending
//   - outbox: LingerAfter
//   - path: Path, Open, Forget, ForgetTypes, EachLeasedSet
//   - submit: ChargeSubmits, WriteCharges, SubmitCharges
package hot
