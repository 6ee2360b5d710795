package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

// claim is a task that a claimer got.
type claim struct {
	TaskID   string `json:"task_id"`
	Callback struct{ Token string }
}

// PassClaims submits tasks of a type, and measures what it costs to claim them all, up to most a
// call. Then it completes them, and checks that each was claimed once.
func (r *Rig) PassClaims(
	ctx context.Context, t *TaskType, tasks, claimers, most int,
) (c Cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience(tasks))
	defer cancel()
	if err := r.SubmitAll(ctx, t, tasks); err != nil {
		return c, err
	}
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return c, err
	}
	all, err := r.claimAll(ctx, t, tasks, claimers, most)
	if err != nil {
		return c, err
	}
	if c, err = meter.Stop(ctx); err != nil {
		return c, err
	}
	if err := r.API.completeAll(ctx, all); err != nil {
		return c, err
	}
	return c, r.checkFinals(ctx, t)
}

// claimAll claims tasks. Each call is for another claimer, which holds no open claims yet. Its
// client is the lightest that there is, since it runs on the same cores.
func (r *Rig) claimAll(
	ctx context.Context, t *TaskType, tasks, claimers, most int,
) (all []claim, err error) {
	host := &fasthttp.HostClient{Addr: strings.TrimPrefix(r.API.Base, "http://"),
		MaxConns: claimers}
	defer host.CloseIdleConnections()
	var mu sync.Mutex
	var calls, got atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range claimers {
		g.Go(func() error {
			for ctx.Err() == nil && got.Load() < int64(tasks) {
				own, err := r.API.claim(host,
					fmt.Appendf(nil, `{"type":%q,"stage":%q,"claimer":"c%d","max":%d}`, t.Name,
						stageName(0), calls.Add(1), most))
				if err != nil {
					return err
				}
				got.Add(int64(len(own)))
				mu.Lock()
				all = append(all, own...)
				mu.Unlock()
			}
			return ctx.Err()
		})
	}
	return all, g.Wait()
}

// claim makes one call.
func (c *Client) claim(host *fasthttp.HostClient, body []byte) ([]claim, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(c.Base + "/v1/claims")
	req.Header.SetMethod(http.MethodPost)
	req.Header.SetContentType("application/json")
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.SetBodyRaw(body)
	if err := host.DoTimeout(req, resp, Slack); err != nil {
		return nil, err
	}
	if resp.StatusCode() != http.StatusOK {
		return nil, fmt.Errorf("claim: HTTP %d: %.500s", resp.StatusCode(), resp.Body())
	}
	var list struct{ Claims []claim }
	err := json.Unmarshal(resp.Body(), &list)
	return list.Claims, err
}

// completers is the number of connections that complete claimed tasks.
const completers = 64

func (c *Client) completeAll(ctx context.Context, all []claim) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range completers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return nil
				}
				own := Client{Base: c.Base, Token: all[i].Callback.Token, HTTP: c.HTTP}
				if _, err := own.Call(ctx, http.MethodPost,
					"/v1/callbacks/"+all[i].TaskID+"/complete", nil); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}
