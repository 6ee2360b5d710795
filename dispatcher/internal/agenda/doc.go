// Package agenda has the times at which a node looks for due tasks of each type. It knows
// neither the database nor the tasks.
package agenda
