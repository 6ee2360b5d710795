package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// accessOf loads a contract with one operation of these lines, and returns that operation.
func accessOf(lines string) (*Operation, error) {
	doc, err := openapi3.NewLoader().LoadFromData([]byte(`
openapi: 3.0.3
info: {title: t, version: "1"}
security: [{bearerAuth: []}]
paths:
  /x:
    get:
      operationId: getX
      responses: {"200": {description: ok}}
      ` + lines + "\n"))
	if err != nil {
		return nil, err
	}
	c, err := newContract(doc)
	if err != nil {
		return nil, err
	}
	return c.Operations[0], nil
}

// The contract defines who may call, and a contract that doesn't is refused.
func TestReadAccess(t *testing.T) {
	t.Parallel()
	for lines, want := range map[string]map[auth.Kind]auth.Scope{
		"x-scope: read":                {auth.KindTenant: auth.ScopeRead},
		"security: [{adminToken: []}]": {auth.KindOperator: auth.ScopeAdmin},

		"x-scope: manage\n      security: [{adminToken: []}, {bearerAuth: []}]": {
			auth.KindOperator: auth.ScopeAdmin, auth.KindTenant: auth.ScopeManage,
		},
	} {
		t.Run(lines, func(t *testing.T) {
			o, err := accessOf(lines)
			require.NoError(t, err, lines)
			assert.Equal(t, AccessToken, o.Access)
			assert.Equal(t, want, o.Scopes, lines)
		})
	}
	o, err := accessOf("security: []")
	require.NoError(t, err)
	assert.Equal(t, AccessOpen, o.Access)
	o, err = accessOf("security: [{completionToken: []}]")
	require.NoError(t, err)
	assert.Equal(t, AccessCompletion, o.Access)
	o, err = accessOf("x-scope: read\n      security: [{bearerAuth: []}, {completionToken: []}]")
	require.NoError(t, err)
	assert.Equal(t, AccessToken, o.Access)
	assert.True(t, o.Deliveries)
	const beside = "takes a completion token beside another"
	for lines, want := range map[string]string{
		"tags: []":       `x-scope is ""`,
		"x-scope: fly":   `x-scope is "fly"`,
		"x-scope: admin": `x-scope is "admin"`,

		"security: [{apiKey: []}]": `the security scheme "apiKey" is not known`,

		"x-scope: read\n      security: [{adminToken: []}]":   "takes no token of a tenant",
		"security: [{completionToken: []}, {adminToken: []}]": beside,

		"x-scope: read\n      security: [{completionToken: []}, {bearerAuth: []}, {adminToken: " +
			"[]}]": beside,
	} {
		t.Run(lines, func(t *testing.T) {
			_, err := accessOf(lines)
			require.ErrorContains(t, err, want, lines)
		})
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	tenant := auth.Principal{Kind: auth.KindTenant, Scopes: auth.NewScopes(auth.ScopeRead)}
	operator := auth.Principal{Kind: auth.KindOperator, Scopes: auth.NewScopes(auth.ScopeAdmin)}
	reads := &Operation{Scopes: map[auth.Kind]auth.Scope{auth.KindTenant: auth.ScopeRead}}
	manages := &Operation{Scopes: map[auth.Kind]auth.Scope{auth.KindTenant: auth.ScopeManage}}
	operates := &Operation{Scopes: map[auth.Kind]auth.Scope{auth.KindOperator: auth.ScopeAdmin}}
	both := &Operation{Scopes: map[auth.Kind]auth.Scope{auth.KindOperator: auth.ScopeAdmin,
		auth.KindTenant: auth.ScopeManage}}
	for _, c := range []struct {
		o    *Operation
		p    auth.Principal
		want string
	}{
		{reads, tenant, ""}, {reads, operator, "needs the token of a tenant"},
		{manages, tenant, `needs the scope "manage"`},
		{manages, operator, "needs the token of a tenant"},
		{operates, operator, ""}, {operates, tenant, "needs an admin token"},
		{operates, auth.Principal{Kind: auth.KindTenant, Scopes: auth.NewScopes(auth.ScopeAdmin)},
			"needs an admin token"},
		{both, operator, ""}, {both, tenant, `needs the scope "manage"`},
		{reads, auth.Principal{}, "needs the token of a tenant"},
		{&Operation{}, operator, "open to nobody"},
	} {
		t.Run(fmt.Sprintf("%s, %+v", c.want, c.p), func(t *testing.T) {
			err := c.o.Allow(c.p)
			if c.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, asyncflow.CodeForbidden, asyncflow.CodeOf(err))
		})
	}
}

// Only operators may call what belongs to no tenant.
func TestOperatorsCalls(t *testing.T) {
	t.Parallel()
	doc, err := openapi.Document()
	require.NoError(t, err)
	c, err := newContract(doc)
	require.NoError(t, err)
	for _, o := range c.Operations {
		if strings.HasPrefix(o.Route.Path, "/v1/governance") {
			assert.Equal(t, map[auth.Kind]auth.Scope{auth.KindOperator: auth.ScopeAdmin}, o.Scopes,
				o.ID)
		}
	}
}
