package web_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// failing counts of the last hour, by how many minutes ago.
var failedAgo = map[int]int{12: 40, 27: 20, 44: 10}

// recordFailures makes a type with failed tasks in three minutes of its last hour, and nothing else
// happened.
func (p *page) recordFailures(tenant, name string) {
	p.t.Helper()
	ctx := p.t.Context()
	p.delayedTasks(name, 0)
	db := p.database()
	for ago, n := range failedAgo {
		_, err := db.Exec(ctx, fmt.Sprintf(`INSERT INTO tenant_%s.tallies
			(type, at, submitted, attempts, failures, succeeded, failed, cancelled)
			VALUES ('%s', now() - interval '%d min', 0, %[4]d, %[4]d, 0, %[4]d, 0)`,
			tenant, name, ago, n))
		require.NoError(p.t, err)
	}
	p.record(tenant)
}

// In the row of a type, each bar is where its five minutes are, and as high as their number says.
func TestBarsOfATypeAreItsNumbers(t *testing.T) {
	tenant := again("barred")
	p := openPageOf(t, tenant)
	p.recordFailures(tenant, "broken")
	p.open("/console")
	p.See("broken")
	p.Run(`
		fetch("/v1/stats/history?by_type=true&step=5m").then(r => r.json()).then(h => window.hour = h);
		const h = window.hour, cell = document.querySelector('td[data-label="Failing"]');
		const rects = [...cell?.querySelectorAll("rect") ?? []];
		if (!h?.types?.length || rects.length === 0) return false;
		const from = Date.parse(h.from), step = 300000;
		const want = Array(Math.round((Date.parse(h.until) - from) / step)).fill(0);
		for (const p of h.types[0].points) {
			want[(Date.parse(p.at) - from) / step] = p.failed_attempts;
		}
		const top = Math.max(...want), bar = e => ["x", "y", "height"].map(a => +e.getAttribute(a));
		return want.filter(n => n > 0).length === 3 && top === 40 && rects.length === want.length &&
			want.every((n, i) => {
				const [x, y, height] = bar(rects[i]);
				return x === i * 5 && Math.abs(height - n / top * 23) < 0.01 && y === 24 - height;
			})`)
	p.quiet()
}

// The bars of a chart are drawn at their minutes, in heights that relate as their numbers: what is
// on the canvas is measured.
func TestBarsOfAChartAreItsNumbers(t *testing.T) {
	tenant := again("drawn")
	p := openPageOf(t, tenant)
	p.recordFailures(tenant, "broken")
	p.open("/console/types/broken")
	p.drawn(4)
	p.Run(`
		fetch("/v1/stats/broken/history").then(r => r.json()).then(h => window.hour = h);
		const f = ` + figure("Tasks finished and failed") + `, h = window.hour;
		const canvas = f?.querySelector("canvas"), over = f?.querySelector(".u-over");
		if (!canvas || !h) return false;
		const colour = document.createElement("span");
		colour.className = "bad";
		document.body.append(colour);
		const [r, g, b] = getComputedStyle(colour).color.match(/\d+/g).map(Number);
		colour.remove();
		const box = canvas.getBoundingClientRect(), plot = over.getBoundingClientRect();
		const ratio = canvas.width / box.width;
		const left = (plot.x - box.x) * ratio, width = plot.width * ratio, high = plot.height * ratio;
		const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
		const tall = x => {
			let n = 0;
			for (let y = 0; y < canvas.height; y++) {
				const i = 4 * (y * canvas.width + Math.round(x));
				if ([r, g, b].every((c, k) => Math.abs(data[i + k] - c) < 12)) n++;
			}
			return n;
		};
		const from = Date.parse(h.from), until = Date.parse(h.until), minute = 60000;
		const failed = new Map(h.points.map(p => [(Date.parse(p.at) - from) / minute, p.failed]));
		const steps = (until - from) / minute, top = Math.max(...failed.values());
		if (top !== 40) return false;
		for (let i = 0; i < steps; i++) {
			const at = left + (i + 0.35) / steps * width; // a bar begins at its minute, and is 0.7 wide
			const want = (failed.get(i) ?? 0) / (top * 1.1) * high;
			if (Math.abs(tall(at) - want) > 3) return false;
		}
		return true`)
	p.quiet()
}
