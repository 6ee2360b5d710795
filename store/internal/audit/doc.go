// Package audit makes changes of the configuration: in one transaction with the entry of the call
// in the audit (Call, Do), with the next version of the tenant's configuration (Change, ChangeBase,
// ChangeSet), and only if the caller's Precondition holds.
//
// It uses package catalog and what is below it. Begin with Change, then Call.
//
// It exports, by the first word of its files:
//
//   - audit: TableOf, Insert, Record, RecordAll, RecordByHand, Forget, DryRunForget
//   - call: Call, NewCall, WithCall, CallOf, Do
//   - change: Change, ChangeBase, ChangeSet
//   - precondition: Precondition, AnyETag, WithPrecondition, WithoutPrecondition, CheckPrecondition
package audit
