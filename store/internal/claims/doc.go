// Package claims gives tasks to workers that ask for them, within the window of each claimer, and
// takes them back from a claimer that is silent.
//
// It uses packages trees, hot, records and catalog. Begin with LeaseForClaims in claim.go.
//
// It exports, by the first word of its files:
//
//   - asked: AskedAt, StageKey
//   - claim: ClaimAsk, LeaseForClaims
//   - claims: Claims, New
//   - forget: ForgetClaims, DryRunForgetClaims
//   - take: TakeBackClaims
package claims
