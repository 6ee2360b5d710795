package console

import (
	"bytes"
	"errors"
	"html/template"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
)

// failurePage is what a person sees when a login at the issuer fails. It has no script: the program
// of the console may not be loaded yet.
var failurePage = template.Must(template.New("failure").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Login failed · asyncflow</title>
<link rel="stylesheet" href="/console/assets/console.css">
</head>
<body class="failure">
<main>
<h1>You are not logged in</h1>
<p>{{.}}</p>
<p><a href="/console">Back to the console</a></p>
</main>
</body>
</html>
`))

// loginFailed answers with a page that says why there is no session. An error of the issuer is a
// 502, so that alerts on 5xx see it.
func (c *Console) loginFailed(ctx *fiber.Ctx, err error) error {
	var known *asyncflow.Error
	if !errors.As(err, &known) || known.Code == asyncflow.CodeInternal {
		return err
	}
	status := fiber.StatusBadRequest
	switch known.Code {
	case asyncflow.CodeUnavailable:
		status = fiber.StatusBadGateway
	case asyncflow.CodeRateLimited:
		status = fiber.StatusTooManyRequests
		ctx.Set(fiber.HeaderRetryAfter, strconv.Itoa(int(known.RetryAfter.Seconds())))
	}
	var page bytes.Buffer
	if err := failurePage.Execute(&page, known.Detail()); err != nil {
		return err
	}
	ctx.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return ctx.Status(status).Send(page.Bytes())
}
