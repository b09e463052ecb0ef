/* SPDX-License-Identifier: Apache-2.0 */
/* A run as one picture: max/mean and copies under way over time, moves so far, and each node's load
 * before and after. Plain SVG 1.1, nothing fetched, no script; the same run gives the same bytes.
 */
#include "simulate/simulate.h"

#include <inttypes.h>

enum {
    WIDTH = 960,
    LEFT = 70,
    PLOT = 860,
    RATIO_TOP = 70,
    RATIO_HIGH = 220,
    MOVES_TOP = 340,
    MOVES_HIGH = 100,
    NODES_TOP = 490,
    NODES_HIGH = 160,
    HEIGHT = 720,
    POINTS_MAX = 1200,
    GRID = 4
};

struct axis {
    int top, high;
    double max;
};

static void put_text(struct buf *b, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c < 0x20) {
            buf_printf(b, "&#%u;", c < 0x20 ? ' ' : c);
        } else {
            buf_put_u8(b, c);
        }
    }
}

static double x_of(const struct scenario *s, uint64_t at_ms)
{
    return LEFT + PLOT * (double)at_ms / (double)s->duration_ms;
}

static double y_of(const struct axis *a, double v)
{
    v = v < 0 ? 0 : v > a->max ? a->max : v;
    return a->top + a->high - a->high * v / a->max;
}

static void put_axis(struct buf *b, const struct axis *a, const char *title)
{
    buf_printf(b, "<text x=\"%d\" y=\"%d\" class=\"h\">%s</text>\n", LEFT, a->top - 10, title);
    for (int i = 0; i <= GRID; i++) {
        double v = a->max * i / GRID;
        buf_printf(b,
                   "<path class=\"g\" d=\"M%d %.1fh%d\"/><text x=\"%d\" y=\"%.1f\" "
                   "class=\"l\">%.*f</text>\n",
                   LEFT, y_of(a, v), PLOT, LEFT - 8, y_of(a, v) + 4, a->max >= 20 ? 0 : 2, v);
    }
}

static void put_hours(struct buf *b, const struct scenario *s, int y)
{
    uint64_t step = s->duration_ms / 12 > 3600000 ? s->duration_ms / 12 : s->duration_ms / 6;
    step = step > 60000 ? step / 60000 * 60000 : step;
    for (uint64_t at = 0; at <= s->duration_ms; at += step > 0 ? step : 1) {
        uint64_t minutes = at / 60000;
        buf_printf(b, "<text x=\"%.1f\" y=\"%d\" class=\"t\">%" PRIu64 ":%02" PRIu64 "</text>\n",
                   x_of(s, at), y, minutes / 60, minutes % 60);
    }
}

typedef double (*value_fn)(const struct simulate_sample *s);

static double ratio_of(const struct simulate_sample *s)
{
    return s->ratio;
}

static double moves_of(const struct simulate_sample *s)
{
    return s->moves;
}

static double under_way_of(const struct simulate_sample *s)
{
    return s->under_way;
}

/* Of each stretch of samples the largest, so that no peak is lost. */
static void put_line(struct buf *b,
                     const struct scenario *s,
                     const struct simulate_outcome *o,
                     const struct axis *a,
                     value_fn value,
                     const char *class)
{
    uint32_t each = o->sample_count / POINTS_MAX + 1;
    buf_printf(b, "<polyline class=\"%s\" points=\"", class);
    for (uint32_t i = 0; i < o->sample_count; i += each) {
        double most = 0;
        for (uint32_t k = i; k < i + each && k < o->sample_count; k++) {
            double v = value(&o->samples[k]);
            most = v > most ? v : most;
        }
        buf_printf(b, "%.1f,%.1f ", x_of(s, o->samples[i].at_ms), y_of(a, most));
    }
    buf_put_str(b, "\"/>\n");
}

static double most_of(const struct simulate_outcome *o, value_fn value, double least)
{
    double most = least;
    for (uint32_t i = 0; i < o->sample_count; i++) {
        double v = value(&o->samples[i]);
        most = v > most ? v : most;
    }
    return most;
}

static void put_events(struct buf *b, const struct scenario *s)
{
    static const char *const names[] = {"", "lost", "back", "drained", "cordoned", "open again"};
    for (uint32_t i = 0; i < s->event_count; i++) {
        const struct scenario_event *v = &s->events[i];
        double x = x_of(s, v->at_ms);
        buf_printf(b,
                   "<path class=\"e\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                   "class=\"n\">",
                   x, RATIO_TOP, MOVES_TOP + MOVES_HIGH, x + 3, RATIO_TOP + 10 + 12 * (int)(i % 4));
        put_text(b, v->node[0] != '\0' ? v->node : v->zone);
        buf_printf(b, " %s</text>\n", names[v->kind]);
    }
}

static void put_bars(struct buf *b, const struct simulate_outcome *o)
{
    struct axis a = {NODES_TOP, NODES_HIGH, 1};
    double each = (double)PLOT / o->node_count;
    for (uint32_t n = 0; n < o->node_count; n++) {
        a.max = o->nodes[n].before > a.max ? o->nodes[n].before : a.max;
        a.max = o->nodes[n].after > a.max ? o->nodes[n].after : a.max;
    }
    put_axis(b, &a, "utilisation of each node, before (grey) and after (blue)");
    for (uint32_t n = 0; n < o->node_count; n++) {
        double x = LEFT + each * n, wide = each * 0.4;
        buf_put_str(b, "<g><title>");
        put_text(b, o->nodes[n].name);
        buf_printf(b,
                   "</title><rect class=\"b\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%.1f\"/><rect class=\"a\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%.1f\"/></g>\n",
                   x, y_of(&a, o->nodes[n].before), wide,
                   NODES_TOP + NODES_HIGH - y_of(&a, o->nodes[n].before), x + wide,
                   y_of(&a, o->nodes[n].after), wide,
                   NODES_TOP + NODES_HIGH - y_of(&a, o->nodes[n].after));
    }
}

static void
put_head(struct buf *b, const struct scenario *s, uint64_t seed, const struct simulate_outcome *o)
{
    buf_printf(b,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 "
               "%d %d\">\n<style>text{font:12px sans-serif;fill:#333}.h{font-weight:bold}"
               ".l{text-anchor:end}.t{text-anchor:middle}.n{font-size:10px;fill:#a33}"
               ".g{stroke:#ddd;fill:none}.e{stroke:#c66;stroke-dasharray:3 3;fill:none}"
               "polyline{fill:none;stroke-width:1.3}.r{stroke:#1a6fb5}.m{stroke:#333}"
               ".u{stroke:#d98a1f}.b{fill:#bbb}.a{fill:#1a6fb5}</style>\n"
               "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
               "<text x=\"%d\" y=\"24\" style=\"font-size:16px\" class=\"h\">",
               WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    put_text(b, s->name);
    buf_printf(b,
               ", seed %" PRIu64 "</text>\n<text x=\"%d\" y=\"42\">max/mean median %.3f, p99 %.3f; "
               "%" PRIu64 " moves, %.1f GiB, %" PRIu64 " splits, %" PRIu64 " merges, %" PRIu64
               " recoveries, %" PRIu64 " violations</text>\n",
               seed, LEFT, o->median, o->p99, o->moves,
               (double)o->bytes / (double)(UINT64_C(1) << 30), o->splits, o->merges, o->recoveries,
               o->violation_count);
}

void simulate_svg(const struct scenario *s,
                  uint64_t seed,
                  const struct simulate_outcome *o,
                  struct buf *out)
{
    struct axis ratio = {RATIO_TOP, RATIO_HIGH, most_of(o, ratio_of, 1.5)};
    struct axis moves = {MOVES_TOP, MOVES_HIGH, most_of(o, moves_of, 4)};
    put_head(out, s, seed, o);
    put_axis(out, &ratio, "max/mean of the nodes' load by capacity");
    put_line(out, s, o, &ratio, ratio_of, "r");
    put_axis(out, &moves, "moves and recoveries so far (black), copies under way (orange)");
    put_line(out, s, o, &moves, moves_of, "m");
    put_line(out, s, o, &moves, under_way_of, "u");
    put_events(out, s);
    put_hours(out, s, MOVES_TOP + MOVES_HIGH + 18);
    put_bars(out, o);
    buf_put_str(out, "</svg>\n");
}
