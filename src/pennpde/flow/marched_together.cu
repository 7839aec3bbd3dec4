// A whole march of a flow by one block of threads, so that a GPU marches hundreds of flows of any mesh at a time.
//
// The formulas are those of `kernels.py` and `krylov.py`, the length of the steps is that of `march.py`; each flow has its
// own. Sums are taken point by point over the entries of a matrix row, never by atomic additions: the same flow gives the
// same numbers in every batch. `marched_together.py` defines the names in capitals, each an array of all flows side by side.

#ifndef ON_CPU
#define WARP 32
#define SHARED __shared__
#define LAUNCH extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
#define BODY __device__ __forceinline__
#endif

#ifdef DOUBLE
typedef unsigned long long bits;
#define BYTES 8
#else
typedef unsigned int bits;
#define BYTES 4
#endif

#define EACH_POINT(i) for (int i = p0 + threadIdx.x; i < p1; i += blockDim.x)
#define EACH_EDGE(e) for (int e = e0 + threadIdx.x; e < e1; e += blockDim.x)
#define EACH_ENTRY(k, i) for (int k = ROWS[i]; k < ROWS[i + 1]; k++)
#define TINY (real)1e-30

// The arrays of all flows, and what is done with them; in the kernels they are arguments.
struct Flows {
MEMBERS

BODY real larger(real a, real b) { return a > b ? a : b; }
BODY real smaller(real a, real b) { return a < b ? a : b; }
BODY real size_of(real a) { return a < 0 ? -a : a; }

BODY real warp_sum(real a) {
#if WARP > 1
    for (int o = WARP / 2; o; o >>= 1) a += __shfl_xor_sync(0xffffffffu, a, o);
#endif
    return a;
}

// Sums over the block; every thread has them afterwards. All that was written before is seen by all.
BODY void sum_up(real& a, real& b, real& c, real* scratch) {
    a = warp_sum(a), b = warp_sum(b), c = warp_sum(c);
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[warp] = a, scratch[32 + warp] = b, scratch[64 + warp] = c;
    __syncthreads();
    a = b = c = 0;
    for (int w = 0; w < warps; w++) a += scratch[w], b += scratch[32 + w], c += scratch[64 + w];
}

BODY real largest(real a, real* scratch) {
    // NaN is larger than everything.
#if WARP > 1
    for (int o = WARP / 2; o; o >>= 1) {
        real b = __shfl_xor_sync(0xffffffffu, a, o);
        a = (b > a || b != b) ? b : a;
    }
#endif
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = a;
    __syncthreads();
    a = 0;
    for (int w = 0; w < blockDim.x / WARP; w++) a = (scratch[w] > a || scratch[w] != scratch[w]) ? scratch[w] : a;
    return a;
}

BODY bits bits_of(real a) { union { real value; bits all; } u; u.value = a; return u.all; }
BODY real number_of(bits a) { union { real value; bits all; } u; u.all = a; return u.value; }

// The so-manieth smallest of numbers that are not negative, counted from one: byte by byte.
BODY real smallest(const real* values, int p0, int p1, int place, int* counts, int* found) {
    bits prefix = 0, known = 0;
    for (int shift = 8 * (BYTES - 1); shift >= 0; shift -= 8) {
        for (int b = threadIdx.x; b < 256; b += blockDim.x) counts[b] = 0;
        __syncthreads();
        EACH_POINT(i) {
            bits all = bits_of(values[i]);
            if ((all & known) == prefix) atomicAdd(&counts[(int)((all >> shift) & 255)], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int b = 0;
            while (b < 255 && counts[b] < place) place -= counts[b], b++;
            found[0] = b, found[1] = place;
        }
        __syncthreads();
        prefix |= (bits)found[0] << shift, known |= (bits)255 << shift, place = found[1];
    }
    return number_of(prefix);
}

BODY void along_slip_walls(int i, real& x, real& y) {
    const real a = SLIP[2 * i], b = SLIP[2 * i + 1], outward = a * x + b * y;
    x -= a * outward, y -= b * outward;
}

// The pressure's equation, block by block: S_k = A_k - W_k C_k^T with W_k = C_k S_(k-1)^-1.
BODY void solve_pressure(int f, int p0, int p1, const real* right, real* result) {
    const int b = BLOCK_SIZE[f], number = BLOCK_COUNT[f], square = b * b;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const real* factors = FACTORS + FACTOR_STARTS[f];
    real* z = BLOCKED + BLOCKED_STARTS[f];
    real* y = z + number * b;
    for (int q = threadIdx.x; q < number * b; q += blockDim.x) {
        const int i = p0 + q;
        z[q] = i < p1 && PRESSURE_FREE[i] > 0 ? right[i] : 0;
    }
    __syncthreads();
    for (int k = 1; k < number; k++) {
        const real* w = factors + k * square;
        for (int r = warp; r < b; r += warps) {
            real sum = 0;
            for (int c = lane; c < b; c += WARP) sum += w[r * b + c] * z[(k - 1) * b + c];
            sum = warp_sum(sum);
            if (lane == 0) z[k * b + r] -= sum;
        }
        __syncthreads();
    }
    for (int row = warp; row < number * b; row += warps) {
        const real* s = factors + (number + row / b) * square + (row % b) * b;
        const real* own = z + (row / b) * b;
        real sum = 0;
        for (int c = lane; c < b; c += WARP) sum += s[c] * own[c];
        sum = warp_sum(sum);
        if (lane == 0) y[row] = sum;
    }
    __syncthreads();
    for (int k = number - 2; k >= 0; k--) {
        const real* w = factors + (2 * number + k + 1) * square;
        for (int r = warp; r < b; r += warps) {
            real sum = 0;
            for (int c = lane; c < b; c += WARP) sum += w[r * b + c] * y[(k + 1) * b + c];
            sum = warp_sum(sum);
            if (lane == 0) y[k * b + r] -= sum;
        }
        __syncthreads();
    }
    EACH_POINT(i) result[i] = PRESSURE_FREE[i] > 0 ? y[i - p0] : 0;
    __syncthreads();
}

// Its factors, in double precision; one inverse of a block is in the block's own memory at a time.
BODY void factorised() {
#ifdef ON_CPU
    double* shared = cpu_shared;
#else
    extern __shared__ double shared[];
#endif
    const int f = blockIdx.x, p0 = POINTS[f], p1 = POINTS[f + 1], b = BLOCK_SIZE[f], number = BLOCK_COUNT[f], square = b * b;
    double *s = shared, *column = s + square, *row = column + b, *w = WIDE + (long long)f * WIDEST * WIDEST;
    real* factors = FACTORS + FACTOR_STARTS[f];
    for (int k = 0; k < number; k++) {
        const int begin = p0 + k * b;
        if (k > 0) {
            for (int place = threadIdx.x; place < square; place += blockDim.x) {
                const int r = place / b, c = place % b, i = begin + r;
                double sum = 0;
                if (i < p1 && PRESSURE_FREE[i] > 0) EACH_ENTRY(n, i) {
                    const int j = COLUMNS[n];
                    if (j < begin && PRESSURE_FREE[j] > 0) sum -= (double)CONDUCTANCES[EDGE_OF[n]] * s[(j - begin + b) * b + c];
                }
                w[place] = sum;
                factors[k * square + place] = (real)sum;
                factors[(2 * number + k) * square + c * b + r] = (real)sum;
            }
            __syncthreads();
        }
        for (int r = threadIdx.x; r < b; r += blockDim.x) {
            const int i = begin + r;
            for (int c = 0; c < b; c++) s[r * b + c] = 0;
            if (i >= p1 || !(PRESSURE_FREE[i] > 0)) s[r * b + r] = 1;
            else EACH_ENTRY(n, i) {
                const int j = COLUMNS[n];
                if (j == i) continue;
                const double conductance = CONDUCTANCES[EDGE_OF[n]];
                s[r * b + r] += conductance;
                if (j >= begin && j < begin + b && PRESSURE_FREE[j] > 0) s[r * b + j - begin] -= conductance;
            }
        }
        __syncthreads();
        if (k > 0) {
            for (int place = threadIdx.x; place < square; place += blockDim.x) {
                const int r = place / b, i = begin + place % b;
                double sum = 0;
                if (i < p1 && PRESSURE_FREE[i] > 0) EACH_ENTRY(n, i) {
                    const int j = COLUMNS[n];
                    if (j < begin && PRESSURE_FREE[j] > 0) sum -= w[r * b + j - begin + b] * (double)CONDUCTANCES[EDGE_OF[n]];
                }
                s[place] -= sum;
            }
            __syncthreads();
        }
        for (int p = 0; p < b; p++) {
            const double inverse = 1.0 / s[p * b + p];
            for (int r = threadIdx.x; r < b; r += blockDim.x) column[r] = s[r * b + p], row[r] = s[p * b + r] * inverse;
            __syncthreads();
            for (int place = threadIdx.x; place < square; place += blockDim.x) {
                const int r = place / b, c = place % b;
                if (r == p) s[place] = c == p ? inverse : row[c];
                else if (c == p) s[place] = -column[r] * inverse;
                else s[place] -= column[r] * row[c];
            }
            __syncthreads();
        }
        for (int place = threadIdx.x; place < square; place += blockDim.x)
            factors[(number + k) * square + place] = (real)s[place];
        __syncthreads();
    }
}

BODY void slope_of(int i, const real* values, real& x, real& y) {
    x = y = 0;
    EACH_ENTRY(k, i) {
        const real value = values[COLUMNS[k]];
        x += GRADIENT[2 * k] * value, y += GRADIENT[2 * k + 1] * value;
    }
}

// Gradients of both components of a velocity.
BODY void velocity_slopes(int p0, int p1, const real* u) {
    EACH_POINT(i) {
        real ux = 0, uy = 0, vx = 0, vy = 0;
        EACH_ENTRY(k, i) {
            const int j = COLUMNS[k];
            const real x = GRADIENT[2 * k], y = GRADIENT[2 * k + 1];
            ux += x * u[2 * j], uy += y * u[2 * j], vx += x * u[2 * j + 1], vy += y * u[2 * j + 1];
        }
        SLOPES[4 * i] = ux, SLOPES[4 * i + 1] = uy, SLOPES[4 * i + 2] = vx, SLOPES[4 * i + 3] = vy;
    }
}

BODY void means_of_cells(int c0, int c1) {
    for (int c = c0 + threadIdx.x; c < c1; c += blockDim.x) {
        real x = 0, y = 0;
        for (int k = SIDE_STARTS[c]; k < SIDE_STARTS[c + 1]; k++) x += ABOVE[2 * SIDES[k]], y += ABOVE[2 * SIDES[k] + 1];
        MEANS[2 * c] = x, MEANS[2 * c + 1] = y;
    }
}

BODY real curved_flux(int e) {
    real flux = 0;
    for (int k = SHARE_STARTS[e]; k < SHARE_STARTS[e + 1]; k++)
        flux += SHARE_FACES[2 * k] * MEANS[2 * SHARES[k]] + SHARE_FACES[2 * k + 1] * MEANS[2 * SHARES[k] + 1];
    return flux;
}

// What is missing to the fluxes in each cell, solved and taken away; `shorter` is the step over its leading factor.
BODY void project(
    int f, int p0, int p1, int e0, int e1, real shorter, const real* pressure, real* u, real* risen, real* fluxes,
    const real* given, real* scratch
) {
    real whole = 0, area = 0, unused = 0;
    EACH_POINT(i) {
        real wanted = -INFLOW[i] / shorter;
        EACH_ENTRY(k, i) {
            const int j = COLUMNS[k];
            if (j == i) continue;
            const int e = EDGE_OF[k];
            const real flux = FIRST[e] == i ? fluxes[e] : -fluxes[e];
            wanted += CONDUCTANCES[e] * (given[j] - given[i]) - flux / shorter;
        }
        WANTED[i] = wanted;
        whole += wanted, area += AREAS[i];
    }
    if (CLOSED[f] > 0) {
        sum_up(whole, area, unused, scratch);
        EACH_POINT(i) WANTED[i] -= AREAS[i] * whole / area;
    }
    __syncthreads();
    solve_pressure(f, p0, p1, WANTED, CHANGE);
    EACH_POINT(i) CHANGE[i] += given[i];
    __syncthreads();
    EACH_POINT(i) {
        real x, y;
        slope_of(i, CHANGE, x, y);
        x *= FREE[i], y *= FREE[i];
        along_slip_walls(i, x, y);
        u[2 * i] -= shorter * x, u[2 * i + 1] -= shorter * y;
        risen[i] = pressure[i] + CHANGE[i];
    }
    EACH_EDGE(e) fluxes[e] -= shorter * CONDUCTANCES[e] * (CHANGE[SECOND[e]] - CHANGE[FIRST[e]]);
    __syncthreads();
}

// The nearest flow that conserves mass, as `step.begin`: the velocity is changed in place.
BODY void begin(int f, int p0, int p1, int e0, int e1, int c0, int c1, real* u, real* fluxes, real* scratch) {
    EACH_POINT(i) {
        real x = u[2 * i], y = u[2 * i + 1];
        along_slip_walls(i, x, y);
        u[2 * i] = x, u[2 * i + 1] = y;
        GIVEN[i] = NOTHING[i] = 0;
    }
    __syncthreads();
    velocity_slopes(p0, p1, u);
    __syncthreads();
    EACH_EDGE(e) {
        const int i = FIRST[e], j = SECOND[e];
        for (int c = 0; c < 2; c++) {
            const real x = SLOPES[4 * i + 2 * c] - SLOPES[4 * j + 2 * c];
            const real y = SLOPES[4 * i + 2 * c + 1] - SLOPES[4 * j + 2 * c + 1];
            ABOVE[2 * e + c] = HEIGHTS[e] * (OFFSETS[2 * e] * x + OFFSETS[2 * e + 1] * y) / 3;
        }
    }
    __syncthreads();
    means_of_cells(c0, c1);
    __syncthreads();
    EACH_EDGE(e) {
        const int i = FIRST[e], j = SECOND[e];
        real flux = curved_flux(e);
        for (int c = 0; c < 2; c++)
            flux += FACES[2 * e + c] * ((u[2 * i + c] + u[2 * j + c]) / 2 + FACET_SHIFT[2 * e + c]);
        fluxes[e] = flux;
    }
    __syncthreads();
    project(f, p0, p1, e0, e1, 1, NOTHING, u, NOTHING, fluxes, GIVEN, scratch);
}

// Row i of the momentum's matrix times values, where they are free.
BODY void image_of(int i, const real* values, real& x, real& y) {
    x = y = 0;
    EACH_ENTRY(k, i) {
        const int j = COLUMNS[k];
        x += MATRIX[k] * values[2 * j], y += MATRIX[k] * values[2 * j + 1];
    }
    x *= FREE[i], y *= FREE[i];
    along_slip_walls(i, x, y);
}

// The momentum's equation from the guess V, by stabilised biconjugate gradients; gives the iterations taken.
BODY int solve_momentum(int p0, int p1, real tolerance, int most, real* scratch) {
    real square = 0, scale = 0, unused = 0;
    EACH_POINT(i) {
        real x = 0, y = 0;
        EACH_ENTRY(k, i) {
            const int j = COLUMNS[k];
            x += MATRIX[k] * V[2 * j], y += MATRIX[k] * V[2 * j + 1];
        }
        real rx = FREE[i] * RIGHT[2 * i], ry = FREE[i] * RIGHT[2 * i + 1];
        x = FREE[i] * (RIGHT[2 * i] - x), y = FREE[i] * (RIGHT[2 * i + 1] - y);
        along_slip_walls(i, x, y), along_slip_walls(i, rx, ry);
        RESIDUAL[2 * i] = SHADOW[2 * i] = DIRECTION[2 * i] = x, RESIDUAL[2 * i + 1] = SHADOW[2 * i + 1] = DIRECTION[2 * i + 1] = y;
        GOING[2 * i] = INVERSE[i] * x, GOING[2 * i + 1] = INVERSE[i] * y;
        square += x * x + y * y, scale += rx * rx + ry * ry;
    }
    sum_up(square, scale, unused, scratch);
    const real limit = tolerance * tolerance * (scale + TINY);
    real rho = square;
    int iterations = 0;
    while (square > limit && iterations < most) {
        iterations++;
        real product = 0, zero = 0, third = 0;
        EACH_POINT(i) {
            real x, y;
            image_of(i, GOING, x, y);
            THROUGH[2 * i] = x, THROUGH[2 * i + 1] = y;
            product += SHADOW[2 * i] * x + SHADOW[2 * i + 1] * y;
        }
        sum_up(product, zero, third, scratch);
        const real alpha = rho / (product + TINY);
        EACH_POINT(i) for (int c = 2 * i; c < 2 * i + 2; c++) {
            V[c] += alpha * GOING[c];
            RESIDUAL[c] -= alpha * THROUGH[c];
            SMOOTHED[c] = INVERSE[i] * RESIDUAL[c];
        }
        __syncthreads();
        real across = 0, own = 0;
        EACH_POINT(i) {
            real x, y;
            image_of(i, SMOOTHED, x, y);
            IMAGE[2 * i] = x, IMAGE[2 * i + 1] = y;
            across += x * RESIDUAL[2 * i] + y * RESIDUAL[2 * i + 1], own += x * x + y * y;
        }
        sum_up(across, own, third, scratch);
        const real omega = across / (own + TINY);
        real following = 0;
        square = 0;
        EACH_POINT(i) for (int c = 2 * i; c < 2 * i + 2; c++) {
            V[c] += omega * SMOOTHED[c];
            const real rest = RESIDUAL[c] - omega * IMAGE[c];
            RESIDUAL[c] = rest;
            following += SHADOW[c] * rest, square += rest * rest;
        }
        sum_up(following, square, third, scratch);
        const real beta = following / (rho + TINY) * (alpha / (omega + TINY));
        rho = following;
        EACH_POINT(i) for (int c = 2 * i; c < 2 * i + 2; c++) {
            DIRECTION[c] = RESIDUAL[c] + beta * (DIRECTION[c] - omega * THROUGH[c]);
            GOING[c] = INVERSE[i] * DIRECTION[c];
        }
        __syncthreads();
    }
    return iterations;
}

// Momentum under a pressure, then what conserves mass; the new state is in u, risen and through.
BODY int pass(
    int f, int p0, int p1, int e0, int e1, int c0, int c1, real step, real leading, bool has_past, const real* pressure,
    real* u, real* risen, real* through, real tolerance, int most, real* scratch
) {
    const real viscosity = VISCOSITY[f], shorter = step / leading;
    velocity_slopes(p0, p1, EXPECTED);
    EACH_POINT(i) {
        slope_of(i, pressure, PRESSURE_SLOPE[2 * i], PRESSURE_SLOPE[2 * i + 1]);
        GIVEN[i] = (PRESSURE[i] - pressure[i]) * (1 - PRESSURE_FREE[i]);
    }
    __syncthreads();
    EACH_EDGE(e) {
        const int i = FIRST[e], j = SECOND[e];
        const real flux = FLUXES[e], x = OFFSETS[2 * e], y = OFFSETS[2 * e + 1];
        for (int c = 0; c < 2; c++) {
            const real here = x * SLOPES[4 * i + 2 * c] + y * SLOPES[4 * i + 2 * c + 1];
            const real there = x * SLOPES[4 * j + 2 * c] + y * SLOPES[4 * j + 2 * c + 1];
            ABOVE[2 * e + c] = HEIGHTS[e] * (here - there) / 3;
            const real rough = EXPECTED[2 * j + c] - EXPECTED[2 * i + c] - (flux > 0 ? here : there);
            GAINED[2 * e + c] = (real)(0.5 * UPWIND) * size_of(flux) * rough;
        }
    }
    __syncthreads();
    means_of_cells(c0, c1);
    EACH_POINT(i) {
        real diagonal = leading * AREAS[i] / step, leaving = 0;
        real x = AREAS[i] * (PAST[2 * i] / step - PRESSURE_SLOPE[2 * i]);
        real y = AREAS[i] * (PAST[2 * i + 1] / step - PRESSURE_SLOPE[2 * i + 1]);
        int own = 0;
        EACH_ENTRY(k, i) {
            if (COLUMNS[k] == i) {
                own = k;
                continue;
            }
            const int e = EDGE_OF[k];
            const real sign = FIRST[e] == i ? 1 : -1, flux = sign * FLUXES[e];
            const real entry = flux / 2 - viscosity * CONDUCTANCES[e];
            MATRIX[k] = entry;
            diagonal -= entry, leaving += flux;
            x += sign * GAINED[2 * e], y += sign * GAINED[2 * e + 1];
        }
        diagonal += OPEN[i] * larger(leaving, 0) / 2;
        MATRIX[own] = diagonal, INVERSE[i] = 1 / diagonal;
        RIGHT[2 * i] = x, RIGHT[2 * i + 1] = y;
        x = FREE[i] > 0 ? EXPECTED[2 * i] : VELOCITY[2 * i], y = FREE[i] > 0 ? EXPECTED[2 * i + 1] : VELOCITY[2 * i + 1];
        along_slip_walls(i, x, y);
        V[2 * i] = x, V[2 * i + 1] = y;
    }
    __syncthreads();
    const int iterations = solve_momentum(p0, p1, tolerance, most, scratch);
    __syncthreads();
    EACH_EDGE(e) {
        const int i = FIRST[e], j = SECOND[e];
        real flux = curved_flux(e);
        CURVED[e] = flux;
        for (int c = 0; c < 2; c++) flux += FACES[2 * e + c] * ((V[2 * i + c] + V[2 * j + c]) / 2 + FACET_SHIFT[2 * e + c]);
        through[e] = flux;
    }
    __syncthreads();
    EACH_POINT(i) {
        real exchange = 0;
        EACH_ENTRY(k, i) if (COLUMNS[k] != i) exchange += size_of(through[EDGE_OF[k]]);
        OWN_TIME[i] = AREAS[i] / (exchange / (2 * (real)CROSSED) + viscosity * CONDUCTING[i] / (real)DIFFUSED + sqrt(AREAS[i]) / (real)PASSED);
        real x = FREE[i] * PRESSURE_SLOPE[2 * i], y = FREE[i] * PRESSURE_SLOPE[2 * i + 1];
        along_slip_walls(i, x, y);
        PRESSURE_SLOPE[2 * i] = x, PRESSURE_SLOPE[2 * i + 1] = y;
    }
    __syncthreads();
    EACH_EDGE(e) {
        const int i = FIRST[e], j = SECOND[e];
        real gained = -CONDUCTANCES[e] * (pressure[j] - pressure[i]);
        for (int c = 0; c < 2; c++) gained += FACES[2 * e + c] * (PRESSURE_SLOPE[2 * i + c] + PRESSURE_SLOPE[2 * j + c]) / 2;
        gained *= shorter;
        if (has_past) {
            real beyond = PAST_FLUXES[e];
            for (int c = 0; c < 2; c++)
                beyond -= FACES[2 * e + c] * ((PAST[2 * i + c] + PAST[2 * j + c]) / 2 + leading * FACET_SHIFT[2 * e + c]);
            gained += beyond / leading - CURVED[e];
        }
        const real time = (OWN_TIME[i] + OWN_TIME[j]) / 2;
        through[e] += time / (time + shorter) * gained;
    }
    EACH_POINT(i) u[2 * i] = V[2 * i], u[2 * i + 1] = V[2 * i + 1];
    __syncthreads();
    project(f, p0, p1, e0, e1, shorter, pressure, u, risen, through, GIVEN, scratch);
    return iterations;
}

// See `march.step_limit`.
BODY real step_limit(int p0, int p1, const real* fluxes, real courant, real* scratch, int* counts, int* found) {
    real whole = 0, slow = 0, unused = 0;
    EACH_POINT(i) {
        real leaving = 0;
        EACH_ENTRY(k, i) {
            if (COLUMNS[k] == i) continue;
            const int e = EDGE_OF[k];
            leaving += larger(FIRST[e] == i ? fluxes[e] : -fluxes[e], 0);
        }
        RATES[i] = leaving / AREAS[i];
        whole += AREAS[i];
    }
    __syncthreads();
    const int place = (int)(NEARLY_FASTEST * (p1 - p0));
    real fastest = smallest(RATES, p0, p1, place > 1 ? place : 1, counts, found);
    EACH_POINT(i) if (RATES[i] <= fastest / (real)FASTER) slow += AREAS[i];
    sum_up(whole, slow, unused, scratch);
    if (slow > (real)NEARLY_FASTEST * whole) {
        // The least rate up to which cells fill nearly all of the area: numbers in the order of their bits.
        bits low = 0, high = bits_of(fastest);
        while (low < high) {
            const bits middle = low + (high - low) / 2;
            real filled = 0, a = 0, b = 0;
            EACH_POINT(i) if (bits_of(RATES[i]) <= middle) filled += AREAS[i];
            sum_up(filled, a, b, scratch);
            if (filled < (real)NEARLY_FASTEST * whole) low = middle + 1; else high = middle;
        }
        fastest = (real)FASTER * number_of(low);
    }
    return courant / larger(fastest, (real)1e-12);
}

BODY real fastest_of(int p0, int p1, const real* u, real* scratch) {
    real fastest = 0;
    EACH_POINT(i) for (int c = 2 * i; c < 2 * i + 2; c++) fastest = size_of(u[c]) <= fastest ? fastest : size_of(u[c]);
    return largest(fastest, scratch);
}

// Every flow to each of its times. TOLD has the number of steps, of iterations, and whether the flow was lost.
BODY void marched() {
    SHARED real scratch[96];
    SHARED int counts[256], found[2];
    const int f = ORDER[blockIdx.x], p0 = POINTS[f], p1 = POINTS[f + 1], e0 = EDGES[f], e1 = EDGES[f + 1];
    const int c0 = CELLS[f], c1 = CELLS[f + 1], first_time = TIME_STARTS[f], last_time = TIME_STARTS[f + 1];
    real *u = U0, *before = U1, *next = U2, *pressure = P0, *risen = P1, *fluxes = F0, *fluxes_before = F1, *through = F2;
    EACH_POINT(i) {
        u[2 * i] = VELOCITY[2 * i], u[2 * i + 1] = VELOCITY[2 * i + 1];
        pressure[i] = PRESSURE[i];
    }
    __syncthreads();
    begin(f, p0, p1, e0, e1, c0, c1, u, fluxes, scratch);
    EACH_POINT(i) START[2 * i] = u[2 * i], START[2 * i + 1] = u[2 * i + 1];
    double now = 0;
    real last = 0, allowed = FIRST_STEP, stretch = 1, fastest = fastest_of(p0, p1, u, scratch);
    bool is_first = true, lost = false;
    int steps = 0, iterations = 0;
    for (int t = first_time; t < last_time && !lost; t++) {
        const double time = TIMES[t];
        while (now < time - 1e-6 * (time > 1 ? time : 1)) {
            const real by_courant = step_limit(p0, p1, fluxes, COURANT, scratch, counts, found);
            const real limit = smaller(smaller(stretch * by_courant, LONGEST), allowed);
            const double left = time - now;
            const real step = (real)(left / ceil(left / limit - 1e-6));
            const real ratio = is_first ? 0 : step / last, share = ratio * ratio / (1 + ratio);
            const real leading = is_first ? 1 : (1 + 2 * ratio) / (1 + ratio);
            EACH_POINT(i) for (int c = 2 * i; c < 2 * i + 2; c++) {
                const real grown = (1 + ratio) * u[c];
                EXPECTED[c] = is_first ? u[c] : grown - ratio * before[c];
                PAST[c] = is_first ? u[c] : grown - share * before[c];
            }
            EACH_EDGE(e) {
                const real grown = (1 + ratio) * fluxes[e];
                FLUXES[e] = is_first ? fluxes[e] : grown - ratio * fluxes_before[e];
                PAST_FLUXES[e] = is_first ? 0 : grown - share * fluxes_before[e];
            }
            __syncthreads();
            iterations += pass(f, p0, p1, e0, e1, c0, c1, step, leading, !is_first, pressure, next, risen, through, TOLERANCE, MOST, scratch);
            if (is_first) {
                // Once more under the pressure that was found.
                EACH_EDGE(e) FLUXES[e] = through[e];
                __syncthreads();
                iterations += pass(f, p0, p1, e0, e1, c0, c1, step, leading, false, risen, next, risen, through, TOLERANCE, MOST, scratch);
            }
            steps++;
            const real faster = fastest_of(p0, p1, next, scratch);
            if (!(faster <= (real)JUMP * (1 + fastest)) && step > (real)(SHORTEST * FIRST_STEP) && steps < MOST_STEPS) {
                allowed = step / 2;
                __syncthreads();
                continue;
            }
            if (!(faster <= (real)LARGEST) || steps >= MOST_STEPS) {
                lost = true;
                break;
            }
            real size = 0, surprise = 0, unused = 0;
            EACH_POINT(i) for (int c = 2 * i; c < 2 * i + 2; c++) {
                const real away = next[c] - EXPECTED[c];
                size += AREAS[i] * next[c] * next[c], surprise += AREAS[i] * away * away;
            }
            sum_up(size, surprise, unused, scratch);
            const real longer = step * sqrt((real)CALM / larger(sqrt(surprise / larger(size, TINY)), (real)1e-12));
            stretch = is_first ? 1 : smaller(larger(longer / by_courant, 1), STRETCH);
            real *swap = before;
            before = u, u = next, next = swap;
            swap = pressure, pressure = risen, risen = swap;
            swap = fluxes_before, fluxes_before = fluxes, fluxes = through, through = swap;
            now += step, last = step, fastest = faster, is_first = false;
            allowed = (real)GROWTH * larger(step, smaller(allowed, limit));
            __syncthreads();
        }
        const long long at = SNAPSHOT_STARTS[t];
        const real none = number_of(~(bits)0);
        EACH_POINT(i) {
            SNAPSHOT_U[2 * (at + i - p0)] = lost ? none : u[2 * i], SNAPSHOT_U[2 * (at + i - p0) + 1] = lost ? none : u[2 * i + 1];
            SNAPSHOT_P[at + i - p0] = lost ? none : pressure[i];
        }
        const long long at_edge = SNAPSHOT_EDGES[t];
        EACH_EDGE(e) SNAPSHOT_F[at_edge + e - e0] = fluxes[e];
    }
    if (threadIdx.x == 0) TOLD[3 * f] = steps, TOLD[3 * f + 1] = iterations, TOLD[3 * f + 2] = lost;
}

// `coarse_march.conserving` of each snapshot's velocity, in place; blocks go through the snapshots of their flow.
BODY void conserved() {
    SHARED real scratch[96];
    const int f = ORDER[blockIdx.x], p0 = POINTS[f], p1 = POINTS[f + 1], e0 = EDGES[f], e1 = EDGES[f + 1];
    for (int t = TIME_STARTS[f]; t < TIME_STARTS[f + 1]; t++) {
        real* given = SNAPSHOT_U + 2 * SNAPSHOT_STARTS[t];
        EACH_POINT(i) for (int c = 0; c < 2; c++)
            U0[2 * i + c] = FREE[i] > 0 ? given[2 * (i - p0) + c] : VELOCITY[2 * i + c];
        __syncthreads();
        begin(f, p0, p1, e0, e1, CELLS[f], CELLS[f + 1], U0, SNAPSHOT_F + SNAPSHOT_EDGES[t] - e0, scratch);
        EACH_POINT(i) for (int c = 0; c < 2; c++) given[2 * (i - p0) + c] = U0[2 * i + c];
        __syncthreads();
    }
}
};

LAUNCH factorise(ARGUMENTS) { Flows flows = {NAMES}; flows.factorised(); }
LAUNCH march(ARGUMENTS) { Flows flows = {NAMES}; flows.marched(); }
LAUNCH conserve(ARGUMENTS) { Flows flows = {NAMES}; flows.conserved(); }
