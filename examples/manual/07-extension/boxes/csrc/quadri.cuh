// SPDX-License-Identifier: Apache-2.0
// Quadrilaterals: the corners of one inside the other, where edges cross, around them their
// hull. A corner is taken for inside by its projections on two edges, which is right for
// rectangles alone.
#ifndef BOXES_QUADRI_CUH
#define BOXES_QUADRI_CUH

constexpr int MOST = 24; // 8 corners, 16 crossings

struct Point {
    float x, y;
};

__device__ inline float cross(Point a, Point b)
{
    return a.x * b.y - a.y * b.x;
}

__device__ inline float dot(Point a, Point b)
{
    return a.x * b.x + a.y * b.y;
}

__device__ inline Point from(Point a, Point b)
{
    return {b.x - a.x, b.y - a.y};
}

__device__ inline float area(const Point *p, int n)
{
    float twice = 0.0f;
    for (int i = 0; i < n; i++)
        twice += cross(p[i], p[(i + 1) % n]);
    return fabsf(twice) / 2;
}

__device__ inline bool inside(Point p, const Point *q)
{
    const float tiny = 1e-6f;
    const Point ab = from(q[0], q[1]), ad = from(q[0], q[3]), ap = from(q[0], p);
    const float b = dot(ap, ab), d = dot(ap, ad);
    return b > -tiny && d > -tiny && b < dot(ab, ab) + tiny && d < dot(ad, ad) + tiny;
}

__device__ int common_points(const Point *a, const Point *b, Point *out)
{
    int n = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const Point u = from(a[i], a[(i + 1) % 4]), v = from(b[j], b[(j + 1) % 4]);
            const float det = cross(u, v);
            if (fabsf(det) < 1e-12f) continue;
            const Point w = from(a[i], b[j]);
            const float s = cross(w, v) / det, t = cross(w, u) / det;
            if (s >= 0 && s <= 1 && t >= 0 && t <= 1)
                out[n++] = {a[i].x + s * u.x, a[i].y + s * u.y};
        }
    for (int i = 0; i < 4; i++) {
        if (inside(a[i], b)) out[n++] = a[i];
        if (inside(b[i], a)) out[n++] = b[i];
    }
    return n;
}

// Around the points, from the lowest on: the next is the one with all others to its left.
__device__ int hull_of(const Point *p, int n, Point *out)
{
    int first = 0;
    for (int i = 1; i < n; i++)
        if (p[i].y < p[first].y || (p[i].y == p[first].y && p[i].x < p[first].x)) first = i;
    int at = first, n_out = 0;
    do {
        out[n_out++] = p[at];
        int next = -1;
        for (int i = 0; i < n; i++) {
            const Point u = from(p[at], p[i]);
            if (dot(u, u) < 1e-10f) continue;
            const float turn = next < 0 ? -1.0f : cross(from(p[at], p[next]), u);
            const Point v = next < 0 ? u : from(p[at], p[next]);
            if (turn < -1e-7f || (turn < 1e-7f && dot(u, u) > dot(v, v)) || next < 0) next = i;
        }
        if (next < 0) break;
        at = next;
        const Point back = from(p[first], p[at]);
        if (dot(back, back) < 1e-10f) break;
    } while (n_out < MOST);
    return n_out;
}

#endif
