// Package checkup looks at an installation as a whole: the server, the way to it, the schemas, the
// nodes, and what the tenants' types lack. It only reads, apart from one NOTIFY.
//
// Begin with Examine in examine.go. Each check has a function; what it asks Postgres stands there.
//
// It exports, by the first word of its files:
//
//   - certificates: Certificate
//   - examine: Examine
//   - finding: Level, LevelOK, LevelNote, LevelWarning, LevelProblem, Finding
package checkup
