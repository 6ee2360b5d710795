// Package check renders the chart in deploy/helm, and checks the result as Kubernetes does. Its
// dependencies are large, so it is a module of its own:
//
//	make deploy-check    # the tests
//	make deploy          # writes deploy/kubernetes again, from the chart
package check
