// Package agenda keeps the times at which a node looks for due tasks of each type. It knows neither
// the database nor the tasks.
package agenda
