package moderation

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// mostPeople is how many people may judge at once.
const mostPeople = 1000

//go:embed page.html images
var files embed.FS

// Config is what a Page needs.
type Config struct {
	Client *client.Client // with the scope work
	Wait   time.Duration  // for an image; 0: 20 s
	Log    *slog.Logger   // nil: the default one
}

// Page is the page on which people judge images. It keeps who judges what in memory only: after a
// restart, people are given the same images again.
type Page struct {
	mux      *http.ServeMux
	cfg      Config
	reporter *worker.Reporter
	page     *template.Template

	mu   sync.Mutex
	open map[string]vote // by person
}

// vote is one that a person is to cast.
type vote struct {
	task     string
	callback worker.Callback
	deadline time.Time
}

// New returns a page.
func New(cfg Config) *Page {
	if cfg.Wait == 0 {
		cfg.Wait = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Page{mux: http.NewServeMux(), cfg: cfg, reporter: worker.NewReporter(nil),
		page: template.Must(template.ParseFS(files, "page.html")), open: map[string]vote{}}
	images, err := fs.Sub(files, "images")
	if err != nil {
		panic(err) // it is in the program
	}
	p.mux.Handle("GET /images/", http.StripPrefix("/images/", http.FileServerFS(images)))
	p.mux.HandleFunc("GET /{$}", p.show)
	p.mux.HandleFunc("POST /vote", p.vote)
	return p
}

// ServeHTTP serves the page, its images, and its form.
func (p *Page) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Security-Policy", "default-src 'self'; style-src 'unsafe-inline'")
	p.mux.ServeHTTP(rw, r)
}

// notes are what the page may say beside an image.
var notes = map[string]string{
	"late":    "Others have decided meanwhile, or your time was over.",
	"problem": "There was a problem. Try again.",
}

// view is what the page shows.
type view struct {
	Name, Task, Image, Note string
}

// show asks for a name, and then shows the next image to the person.
func (p *Page) show(rw http.ResponseWriter, r *http.Request) {
	v := view{Name: r.FormValue("name"), Note: notes[r.FormValue("note")]}
	if v.Name != "" {
		d, err := p.next(r.Context(), v.Name)
		switch {
		case err != nil:
			p.cfg.Log.Warn("can't ask for an image", "error", err)
			v.Note = notes["problem"]
		case d.TaskID == "":
			v.Note = "There is nothing to judge at the moment."
		default:
			v.Task, v.Image = d.TaskID, imageOf(d)
		}
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := p.page.Execute(rw, v); err != nil {
		p.cfg.Log.Warn("can't write the page", "error", err)
	}
}

// next returns the image that a person is to judge: the same one until the person votes.
func (p *Page) next(ctx context.Context, name string) (d client.Delivery, err error) {
	if p.isFull(name) {
		return d, errors.New("too many people are judging at the moment")
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Wait+30*time.Second)
	defer cancel()
	all, err := p.cfg.Client.Claim(ctx, client.ClaimRequest{Type: "moderation", Stage: "judge",
		Claimer: name, Max: 1, Wait: client.NewDuration(p.cfg.Wait)})
	if err != nil || len(all) == 0 {
		return d, err
	}
	d = all[0]
	// The claim is held from now on: people need longer than its first 15 seconds.
	v := vote{task: d.TaskID, callback: worker.Callback{URL: d.Callback.URL,
		Token: d.Callback.Token}}
	if v.deadline, err = p.reporter.Heartbeat(ctx, v.callback); err != nil {
		return client.Delivery{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[name] = v
	return d, nil
}

// isFull reports whether a person must wait, because too many are judging. Those without time left
// don't count.
func (p *Page) isFull(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.open, func(_ string, v vote) bool { return time.Now().After(v.deadline) })
	_, known := p.open[name]
	return !known && len(p.open) >= mostPeople
}

// vote reports what a person said, and shows the next image.
func (p *Page) vote(rw http.ResponseWriter, r *http.Request) {
	name, note := r.PostFormValue("name"), ""
	p.mu.Lock()
	v, ok := p.open[name]
	delete(p.open, name)
	p.mu.Unlock()
	switch label := r.PostFormValue("label"); {
	case !ok || v.task != r.PostFormValue("task"):
		note = "late"
	case label != "fine" && label != "not fine":
		http.Error(rw, "label must be fine or not fine", http.StatusBadRequest)
		return
	default:
		err := p.reporter.Complete(r.Context(), v.callback, map[string]string{"label": label})
		switch {
		case errors.Is(err, worker.ErrLost):
			note = "late"
		case err != nil:
			p.cfg.Log.Warn("can't report a vote", "error", err)
			note = "problem"
		}
	}
	q := r.URL.Query()
	q.Set("name", name)
	q.Set("note", note)
	http.Redirect(rw, r, "/?"+q.Encode(), http.StatusSeeOther)
}

// imageOf returns the name of the image that a task is about.
func imageOf(d client.Delivery) string {
	var doc struct {
		Image string `json:"image"`
	}
	_ = json.Unmarshal(d.Context, &doc) // the page says that there is no image
	return doc.Image
}
