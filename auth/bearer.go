package auth

import "strings"

// Bearer returns the token in the value of an Authorization header (RFC 6750, section 2.1). The
// case of the scheme doesn't matter. An error is CodeUnauthenticated.
func Bearer(header string) (string, error) {
	header = strings.Trim(header, " \t")
	if header == "" {
		return "", refuse(noToken)
	}
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimLeft(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t\r\n,") {
		return "", refuse("the Authorization header is not of the form: Bearer <token>")
	}
	return token, nil
}
